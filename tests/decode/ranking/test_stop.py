from dataclasses import replace

from hypothesis import given, strategies as st

from unspool.decode.ranking import GNMT, BeamStatus, FirstFull, Heuristic, Length, Proved, Sum

LATE = BeamStatus(worst=-1.0, total=-4.0, length=3, limit=10, penalty=Length(1.0), rising=False)


def test_by_hand():
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
