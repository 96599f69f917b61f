import pytest
from hypothesis import given, settings, strategies as st

from unspool.evaluate.reference_overlap import overlap, overlap_measures

TEXT = st.text(alphabet="ab c.", max_size=20)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6))
def test_the_values_are_sacrebleus(pairs):
    outputs, references = [a for a, _ in pairs], [b for _, b in pairs]
    theirs, ours = overlap(outputs, references), overlap_measures(outputs, references)
    for name in ("bleu", "chrf", "ter"):
        assert ours[name].value == pytest.approx(getattr(theirs, name), abs=1e-9), name


def test_chrf_by_hand():
    # "ab" beside "abc": n = 1: 2 of 2 and 2 of 3; n = 2: 1 of 1 and 1 of 2; P = 1, R = 7/12
    expected = 100 * 5 * (7 / 12) / (4 + 7 / 12)
    assert overlap_measures(["ab"], ["a bc"])["chrf"].value == pytest.approx(expected)


def test_unequal_lengths_raise():
    with pytest.raises(ValueError, match="2 outputs but 1 references"):
        overlap_measures(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="outputs is empty"):
        overlap_measures([], [])
