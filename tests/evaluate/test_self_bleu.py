import pytest
from hypothesis import given, settings, strategies as st
from sacrebleu.metrics import BLEU

from unspool.evaluate.reference_overlap import self_bleu


def test_by_hand():
    # a b c beside a b d: 1-grams 2/3, 2-grams 1/2; the same the other way round
    assert self_bleu(["abc", "abd"], 2) == pytest.approx((2 / 3 * 1 / 2) ** 0.5)


def test_extremes():
    assert self_bleu(["abcde"] * 3) == pytest.approx(1)
    assert self_bleu(["ab", "cd"], 1) == 0
    assert self_bleu(["ab", "ba"], 2) == pytest.approx((1 * 0.1) ** 0.5)
    assert self_bleu([[], []]) == 0


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), min_size=2, max_size=6))
def test_it_is_sacrebleus_sentence_bleu_against_all_others(texts):
    metric = BLEU(tokenize="none", smooth_method="floor", smooth_value=0.1, effective_order=True)
    lines = [" ".join(text) for text in texts]
    theirs = [
        metric.sentence_score(line, [other for at, other in enumerate(lines) if at != place]).score
        for place, line in enumerate(lines)
    ]
    assert 100 * self_bleu(texts) == pytest.approx(sum(theirs) / len(theirs))


def test_one_text_has_no_others():
    with pytest.raises(ValueError, match="at least two texts"):
        self_bleu(["abc"])
    with pytest.raises(TypeError, match="must be a list of texts"):
        self_bleu("abc")
