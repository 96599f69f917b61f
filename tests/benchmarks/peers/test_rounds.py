import pytest

from peers import rounds
from peers.process import Answer
from peers.rounds import first_difference, measure, result
from peers.work import Work

WORK = Work([[1, 2], [3, 4]], 5)


class Metronome:
    """An engine whose seconds are known, and which writes down when it was asked."""

    def __init__(self, name, seconds, diary, short=0):
        self.name, self.seconds, self.diary, self.short = name, list(seconds), diary, short

    def generate(self, work):
        warm_up = work.new == rounds.WARM_UP
        self.diary.append(self.name.lower() if warm_up else self.name)
        seconds = 9.0 if warm_up else self.seconds.pop(0)
        return Answer(seconds, [[0] * (work.new - self.short) for _ in work.prompts], {})


@pytest.fixture(autouse=True)
def awake(monkeypatch):
    monkeypatch.setattr(rounds, "REST", 0.0)


def test_engines_take_turns_within_a_round_after_a_warm_up():
    diary = []
    engines = {name: Metronome(name, [1.0, 1.0], diary) for name in "AB"}

    def bandwidth():
        diary.append("read")
        return 100.0

    measure(engines, WORK, 2, bandwidth)
    assert diary == ["a", "b", "read", "A", "B", "read", "A", "B"]


def test_ratios_and_shares_are_taken_within_a_round():
    engines = {"ref": Metronome("ref", [4.0, 8.0, 2.0], []), "own": Metronome("own", [2.0, 2.0, 2.0], [])}
    speeds = iter([100.0, 200.0, 50.0])
    answers, read = measure(engines, WORK, 3, lambda: next(speeds))
    own = result(answers["own"], answers["ref"], WORK, 20, read)
    assert own.ratios == [2.0, 4.0, 1.0]
    assert own.tokens_per_second == 5 * 2 / 2.0
    # 20 bytes for each of 5 tokens in 2 seconds are 50 a second, however many rows there are
    assert own.shares == [0.5, 0.25, 1.0]


def test_without_a_reference_there_are_no_ratios():
    assert result([Answer(1.0, [[1]], {})], None, WORK, 1, [1.0]).ratios == []


def test_another_number_of_tokens_is_not_compared():
    with pytest.raises(RuntimeError, match="own wrote"):
        measure({"own": Metronome("own", [1.0], [], short=1)}, WORK, 1, lambda: 1.0)


def test_the_first_difference_is_found():
    assert first_difference([[1, 2], [3]], [[1, 2], [3]]) is None
    assert first_difference([[1, 2], [3]], [[1, 2], [4]]) == 2
    assert first_difference([[1, 2]], [[1, 2], [4]]) == 2
