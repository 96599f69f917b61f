import json

from rich.console import Console

from peers import comparison
from peers.comparison import Comparison, compare, same_text, write_json
from peers.lineup import Contender
from peers.process import Answer, EngineFailedError
from peers.rounds import Result
from peers.tables import Start
from peers.work import parse_mode


def wrote(*rows):
    return Result([1.0], 1.0, [1.0], [1.0], [list(row) for row in rows])


def test_who_wrote_the_text_of_the_reference_is_said():
    results = {"Hugging Face": wrote("abc"), "A": wrote("abc"), "B": wrote("abd"), "C int8": wrote("xyz")}
    assert same_text(parse_mode("greedy"), results, {"Hugging Face", "A", "B"}) == [
        "greedy: A wrote the text of Hugging Face",
        "greedy: B DIFFERS from Hugging Face at token 2",
    ]
    assert same_text(parse_mode("top-p 0.9"), results, {"A"}) == []
    del results["Hugging Face"]
    assert same_text(parse_mode("greedy"), results, {"A"}) == []


class Parrot:
    """An engine that says one token, in a second."""

    def __init__(self, token):
        self.token = token

    def generate(self, work):
        return Answer(1.0, [[self.token] * work.new for _ in work.prompts], {})

    def close(self):
        pass


class Metre:
    process = Parrot(0)

    def __init__(self, threads):
        pass

    def __call__(self):
        return 1e9


def test_who_cannot_start_is_left_out_and_the_others_are_compared(monkeypatch, tmp_path):
    def start(contender, threads, prompt):
        if contender.name == "broken":
            raise EngineFailedError("out of order")
        assert prompt == list(range(16))
        return Parrot(len(contender.name)), Start("1", 10**8, 0.1, 0.2, 0.3, {"peak": 10**6}), None

    monkeypatch.setattr(comparison, "start", start)
    monkeypatch.setattr(comparison, "Bandwidth", Metre)
    names = ("Hugging Face", "Hugging Gace", "broken")
    contenders = [Contender(name, "", {}, 10**8, exact=True) for name in names]
    plan = Comparison("tiny", [parse_mode("greedy"), parse_mode("beam 4")], [list(range(64))], 5, 2)
    console = Console(width=120)
    with console.capture() as capture:
        found = compare(plan, contenders, 1, console)
    text = capture.get()
    assert "broken is left out: out of order" in text
    assert "greedy: Hugging Gace wrote the text of Hugging Face" in text
    assert found.modes["beam 4"]["Hugging Gace"].ratios == [1.0, 1.0]
    assert found.modes["greedy"]["Hugging Gace"].shares == [0.5, 0.5]  # 5 × 10⁸ bytes in a second of 10⁹
    write_json(tmp_path / "out/found.json", {1: found})
    read = json.loads((tmp_path / "out/found.json").read_text(encoding="utf-8"))["threads"]["1"]
    assert read["modes"]["greedy"]["Hugging Face"]["tokens_per_second"] == 5.0
    assert read["starts"].keys() == {"Hugging Face", "Hugging Gace"}
