from __future__ import annotations

import threading

import pytest

from unspool.text.ledger import Ledger, OutOfTimeError


@pytest.mark.parametrize(
    ("value", "weight"),
    [
        ("abc", 3),
        (b"ab", 2),
        (7, 1),
        (None, 1),
        ([], 1),
        (["ab", "ab"], 1 + 2 + 4),
        (("a", [5]), 1 + 2 + 1 + (1 + 1 + 1)),
        ({"role": "me"}, 1 + 1 + 4 + 2),
    ],
)
def test_a_weight_is_about_the_length_when_written(value: object, weight: int) -> None:
    assert Ledger().weigh(value) == weight


def test_what_doubles_forty_times_is_weighed_at_once() -> None:
    value: list[object] = []
    for _ in range(40):
        value = [value, value]
    # w(0) = 1 and w(n + 1) = 3 + 2 w(n), so that w(n) = 4 · 2ⁿ − 3.
    assert Ledger().weigh(value) == 4 * 2**40 - 3


def test_time_runs_from_the_opening() -> None:
    ledger = Ledger()
    ledger.tick()
    ledger.open(-1.0)
    with pytest.raises(OutOfTimeError):
        ledger.tick()
    ledger.open(1000.0)
    ledger.tick()


def test_every_thread_has_a_page_of_its_own() -> None:
    ledger = Ledger()
    ledger.made = 5
    ledger.open(-1.0)
    seen: list[int] = []

    def other() -> None:
        ledger.tick()
        seen.append(ledger.made)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [0]
