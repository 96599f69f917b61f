from rich.console import Console

from peers.rounds import Result
from peers.tables import Start, speed_table, start_table


def shown(table):
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_a_ratio_is_shown_with_its_spread_and_its_share_of_the_limit():
    results = {"greedy": {"unspool": Result([1.0], 12.34, [1.5, 3.0, 2.0], [0.5, 0.25, 0.75], [[1]])}}
    text = shown(speed_table("title", results))
    for part in ("greedy", "unspool", "12.3", "2.00", "1.50–3.00", "50%"):
        assert part in text


def test_without_a_reference_there_is_a_dash():
    text = shown(speed_table("title", {"greedy": {"unspool": Result([1.0], 1.0, [], [0.5], [[1]])}}))
    assert "–" in text


def test_a_start_is_shown_in_megabytes_and_seconds():
    memory = {"resident": 220_000_000, "own": 50_000_000, "peak": 230_000_000}
    starts = {"unspool": Start("1", 135_000_000, 1.5, 0.25, 0.75, memory)}
    text = shown(start_table("title", starts))
    for part in ("135", "220", "50", "230", "1.50", "0.25", "0.75"):
        assert part in text
    assert "–" in shown(start_table("title", {"unspool": Start("1", 1, 1.0, 1.0, 1.0, {"peak": 10**6})}))
