from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from unspool.data.line_formats import Lines
from unspool.data.rows import HeldOut


def held_out(**settings: float) -> HeldOut:
    return Lines(train="a", **settings)  # type: ignore[arg-type]


@given(st.integers(2, 300), st.integers(0, 10), st.data())
def test_as_many_rows_as_asked_for_are_held_out(count: int, seed: int, data: st.DataObject) -> None:
    lines = data.draw(st.integers(1, count - 1))
    mask = held_out(valid_lines=lines).held(count, seed)
    assert (len(mask), int(mask.sum())) == (count, lines)
    assert (mask == held_out(valid_lines=lines).held(count, seed)).all()


def test_a_share_is_rounded_and_at_least_one_row() -> None:
    assert held_out(valid_share=0.25).held(10, 0).sum() == 2
    assert held_out(valid_share=0.01).held(10, 0).sum() == 1
    assert held_out().held(10, 0).sum() == 0
    assert not held_out().holds_out


def test_another_seed_holds_out_other_rows() -> None:
    assert len({tuple(held_out(valid_lines=5).held(50, seed)) for seed in range(4)}) == 4


def test_rows_that_hang_together_are_held_out_at_the_end() -> None:
    assert Lines(train="a", document="file", valid_lines=2).held(5, 0).tolist() == [
        False,
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"valid_share": 1.0}, "valid_share is 1.0"),
        ({"valid_share": -0.1}, "valid_share is -0.1"),
        ({"valid_lines": -1}, "valid_lines is -1"),
        ({"valid_lines": 1, "valid_share": 0.1}, "choose one"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        held_out(**settings)


def test_something_must_be_left_to_train_on() -> None:
    with pytest.raises(ValueError, match=r"10 rows are to be held out .* only 10"):
        held_out(valid_lines=10).held(10, 0)
