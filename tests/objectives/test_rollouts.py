import pytest
import torch

from unspool.decode.search import Greedy, Sample
from unspool.objectives.rollouts import RolloutObjective, make_prompts, rollout_batch


def test_questions_by_hand(transformer, rows, translator, pairs):
    asked = make_prompts(transformer(), rows(), 3)
    assert [(it.prompt, it.reference) for it in asked] == [((1, 3, 4), (5, 6, 2)), ((1, 7, 8), (2,))]
    asked = make_prompts(translator(), pairs(), 3)
    assert [(it.prompt, it.reference) for it in asked] == [((3, 4, 5, 2), (5, 4, 3, 2)), ((6, 2), (6, 2))]


def test_a_row_that_leaves_nothing_to_say_is_left_out(transformer, rows):
    assert [it.row for it in make_prompts(transformer(), rows(), 4)] == [0]
    assert make_prompts(transformer(), rows(), 9) == []


def test_the_right_answers_make_the_batch_itself(translator, pairs, transformer, rows):
    model, batch = translator(), pairs()
    asked = make_prompts(model, batch, 1)
    again = rollout_batch(model, batch, asked, [it.reference for it in asked])
    for name in ("inputs_NT", "targets_NU", "weights_NU", "lengths_N", "source_NS", "source_lengths_N"):
        real = batch.weights_NU if name in ("inputs_NT", "targets_NU") else 1
        assert torch.equal(getattr(again, name) * real, getattr(batch, name) * real), name
    model, batch = transformer(), rows()
    asked = make_prompts(model, batch, 2)
    again = rollout_batch(model, batch, asked, [it.reference for it in asked])
    assert again.targets_NU[0].tolist() == [3, 4, 5, 6, 2]
    assert again.weights_NU.tolist() == [[0, 1, 1, 1, 1], [0, 1, 1, 0, 0]]  # what was given does not count


def test_answers_are_the_models_own_and_follow_the_dice_of_torch(spoken):
    model, batch = spoken
    objective = RolloutObjective()

    def said(seed, search, n=3):
        torch.manual_seed(seed)
        asked = make_prompts(model, batch, 8)
        return [[out.tokens for out in group] for group in objective.generate(model, asked, search, n)]

    assert said(1, Sample()) == said(1, Sample())
    assert said(1, Sample()) != said(2, Sample())
    assert said(1, Greedy(), 1) == said(2, Greedy(), 1)
    longest = [max(map(len, group)) for group in said(1, Sample(), 20)]
    assert longest[0] <= 3  # 1.5 × 2
    assert longest[1] <= 5  # 1.5 × 3, rounded up


@pytest.mark.parametrize("wrong", [{"prompt": 0}, {"stretch": 0.0}, {"stretch": float("inf")}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RolloutObjective(**wrong)


def test_models_without_texts_are_refused(classifier):
    with pytest.raises(ValueError, match="Classifier predicts labels"):
        RolloutObjective().check(classifier("rnn"))
