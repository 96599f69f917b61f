import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st

from unspool.decode.ranking import (
    GNMT,
    Attended,
    BeamStatus,
    Coverage,
    FirstFull,
    Heuristic,
    Length,
    Proved,
    Sum,
)
from unspool.interfaces import Step


def test_the_sum_is_the_score_whatever_the_length():
    assert Sum()(-3.5, 1) == Sum()(-3.5, 400) == -3.5


@given(st.floats(-1e6, 0), st.integers(1, 5000))
def test_it_is_the_length_penalty_of_power_zero(total, length):
    assert Sum()(total, length) == Length(0.0)(total, length)


def test_length_by_hand():
    assert Length(1.0)(-6.0, 4) == -1.5
    assert Length(0.5)(-6.0, 4) == -3.0
    assert Length(-1.0)(-6.0, 4) == -24.0
    assert repr(Length(0.5)) == "Length(alpha=0.5)"


@given(st.floats(-1e4, -1e-4), st.integers(1, 2000), st.floats(0.01, 10))
def test_a_positive_power_favours_the_longer_a_negative_one_the_shorter(total, length, alpha):
    assert Length(alpha)(total, length + 1) >= Length(alpha)(total, length)
    assert Length(-alpha)(total, length + 1) <= Length(-alpha)(total, length)


@pytest.mark.parametrize("alpha", [math.nan, math.inf, -math.inf, 11.0, -1000])
def test_length_a_power_that_is_no_number_or_too_steep_is_refused(alpha):
    with pytest.raises(ValueError, match=r"Length\.alpha"):
        Length(alpha)


def test_a_power_that_is_not_a_number_at_all_is_refused():
    with pytest.raises(TypeError, match="must be a number"):
        Length("1")


def test_long_texts_do_not_overflow():
    assert math.isfinite(Length(10)(-1e6, 1_000_000))
    assert math.isfinite(Length(-10)(-1e6, 1_000_000))


def test_gnmt_by_hand():
    # ((5 + 7) / 6)^1 = 2 and ((5 + 19) / 6)^0.5 = 2
    assert GNMT(1.0)(-6.0, 7) == -3.0
    assert GNMT(0.5)(-6.0, 19) == -3.0


@given(st.floats(-1e4, 0), st.floats(-10, 10))
def test_one_token_pays_nothing(total, alpha):
    assert GNMT(alpha)(total, 1) == total


@given(st.floats(-1e4, -1e-4), st.integers(1, 2000), st.floats(0.01, 10))
def test_it_is_monotone_in_the_length(total, length, alpha):
    assert GNMT(alpha)(total, length + 1) >= GNMT(alpha)(total, length)
    assert GNMT(-alpha)(total, length + 1) <= GNMT(-alpha)(total, length)


@pytest.mark.parametrize("alpha", [math.nan, math.inf, 10.5])
def test_gnmt_a_power_that_is_no_number_or_too_steep_is_refused(alpha):
    with pytest.raises(ValueError, match=r"GNMT\.alpha"):
        GNMT(alpha)


def says(attention):
    return Step(torch.zeros(len(attention), 2), attention=torch.tensor(attention))


def test_coverage_by_hand():
    attended = Attended.begin(says([[0.5, 0.25, 0.25]])).plus(says([[0.9, 0.05, 0.05]]))
    # sums 1.4 → 1, 0.3, 0.3
    assert Coverage(0.5)(attended).item() == pytest.approx(0.5 * 2 * math.log(0.3), abs=1e-6)


def test_a_source_that_was_wholly_looked_at_costs_nothing():
    attended = Attended.begin(says([[0.5, 0.5]])).plus(says([[0.5, 0.5]])).plus(says([[0.9, 0.1]]))
    assert Coverage(1.0)(attended).item() == 0.0


def test_the_penalty_only_shrinks_as_more_is_looked_at():
    torch.manual_seed(0)
    attention_TNS = torch.rand(6, 4, 5).softmax(-1)
    attended = Attended.begin(Step(torch.zeros(4, 2), attention=attention_TNS[0]))
    before = Coverage()(attended)
    for attention_NS in attention_TNS[1:]:
        attended = attended.plus(Step(torch.zeros(4, 2), attention=attention_NS))
        after = Coverage()(attended)
        assert (after >= before).all()
        assert (after <= 0).all()
        before = after


def test_padding_of_a_shorter_source_does_not_count():
    alone = Attended.begin(says([[0.7, 0.3]])).plus(says([[0.6, 0.4]]))
    batch = Attended.begin(says([[0.7, 0.3, 0.0], [0.1, 0.2, 0.7]])).plus(
        says([[0.6, 0.4, 0.0], [0.3, 0.3, 0.4]])
    )
    assert Coverage()(batch)[0].item() == pytest.approx(Coverage()(alone)[0].item(), abs=1e-12)


def test_a_token_never_looked_at_costs_much_but_not_everything():
    attended = Attended.begin(says([[0.5, 0.5], [0.5, 0.5]]))
    attended = Attended(attended.sum_NS * torch.tensor([[1.0, 0.0], [1.0, 1.0]]), attended.real_NS)
    missed, seen = Coverage(1.0)(attended).tolist()
    assert math.isfinite(missed)
    assert missed < seen - 100


def test_rows_are_moved_with_their_hypotheses():
    attended = Attended.begin(says([[0.9, 0.1], [0.2, 0.8]]))
    moved = attended.select(torch.tensor([1, 1, 0]))
    assert moved.sum_NS[:, 0].tolist() == pytest.approx([0.2, 0.2, 0.9])


def test_a_model_without_attention_is_refused():
    with pytest.raises(ValueError, match=r"Coverage needs Step.attention"):
        Attended.begin(Step(torch.zeros(1, 2)))
    with pytest.raises(ValueError, match=r"one of shape \(1, 2, 3\)"):
        Attended.begin(Step(torch.zeros(1, 2), attention=torch.zeros(1, 2, 3)))


def test_attention_over_something_that_grows_is_refused():
    with pytest.raises(ValueError, match="changed its shape"):
        Attended.begin(says([[0.5, 0.5]])).plus(says([[0.4, 0.3, 0.3]]))


@pytest.mark.parametrize("beta", [-0.1, math.nan, math.inf])
def test_a_weight_that_is_no_weight_is_refused(beta):
    with pytest.raises(ValueError, match=r"Coverage\.beta"):
        Coverage(beta)


LATE = BeamStatus(worst=-1.0, total=-4.0, length=3, limit=10, penalty=Length(1.0), rising=False)


def test_stop_by_hand():
    # Ended now, the best live hypothesis is worth −4/3; ended at the limit, at best −4/10.
    assert FirstFull()(LATE)
    assert Heuristic()(LATE)
    assert not Proved()(LATE)
    assert Proved()(replace(LATE, worst=-0.4))


def test_under_a_penalty_that_favours_short_texts_the_heuristic_is_a_proof():
    status = replace(LATE, penalty=Length(-0.5), worst=-6.0)
    assert Heuristic()(status)
    assert Proved()(status)


def test_where_scores_may_be_above_zero_nothing_is_proved():
    assert not Proved()(replace(LATE, worst=0.0, rising=True))


penalties = st.one_of(st.just(Sum()), st.floats(-3, 3).map(Length), st.floats(-3, 3).map(GNMT))


@given(
    st.floats(-50, 0),
    st.floats(-50, 0),
    st.integers(1, 20),
    st.integers(1, 20),
    penalties,
    st.lists(st.floats(-5, 0), min_size=1, max_size=20),
)
def test_what_is_proved_holds_for_every_continuation(worst, total, length, more, penalty, added):
    status = BeamStatus(worst, total, length, length + more, penalty, rising=False)
    if Proved()(status):
        for count in range(1, min(more, len(added)) + 1):
            end = penalty(total + sum(added[:count]), length + count)
            assert end <= worst + 1e-9 * abs(worst)
