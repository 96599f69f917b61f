import pytest

from unspool.objectives.expected_reward import Rewarded, worth


def test_worth_compares_texts_without_their_ends(spoken):
    model, _ = spoken
    (eos,) = model.tokenizer.eos_ids
    a, b = model.tokenizer.encode("a b")[-2:]
    assert worth(model, lambda said, wanted: (said, wanted), [a, b, eos], [b]) == ("a b", "b")


def test_models_whose_answers_no_reward_can_read_are_refused(classifier, translator, spoken):
    model, _ = spoken
    Rewarded().check(model)
    with pytest.raises(ValueError, match="no tokenizer"):
        Rewarded().check(translator())
    with pytest.raises(ValueError, match="a Classifier says labels"):
        Rewarded().check(classifier("rnn"))


def test_a_reward_must_be_there():
    assert Rewarded().rewarded
    with pytest.raises(ValueError, match="not a known reward"):
        Rewarded(reward="blue")
