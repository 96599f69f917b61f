import json
import os
import re
from inspect import signature

import pytest

import unspool as us
from unspool.cli.compare import COLUMNS, DEFAULT_DECODERS, print_comparison
from unspool.decode.output import Output
from unspool.decode.search import SEARCHES
from unspool.decode.transforms import TRANSFORMS
from unspool.evaluate.comparison import DecoderRow

TWO = ("--decoder", "Greedy()", "--decoder", "Sample(TopP(0.9))")
ASK = ("compare", "a", "--max-new-tokens", "12", "--seed", "1")


@pytest.mark.parametrize("spec", DEFAULT_DECODERS)
def test_default_decoders_can_be_read(spec):
    assert us.parse(spec) == us.parse(repr(us.parse(spec)))


def test_every_technique_that_needs_only_a_model_is_compared():
    ready = {
        name
        for name, kind in {**SEARCHES, **TRANSFORMS}.items()
        if all(parameter.default is not parameter.empty for parameter in signature(kind).parameters.values())
    } - {"Grammar", "MaskPredict", "MaskedDiffusion"}  # one is given a grammar, two fill masked models
    assert ready - {name for spec in DEFAULT_DECODERS for name in re.findall(r"\w+(?=\()", spec)} == set()


def test_the_table_names_every_decoder_and_shows_the_loop(unspool, loaded):
    status, out, err = unspool(*ASK, *TWO)
    assert (status, err) == (0, "")
    assert "Sample(TopP(0.9))" in out
    greedy = out[out.index("Greedy()") :].splitlines()
    # log p of the likeliest token, 12 tokens of the loop b c a: 9 4-grams, 3 unique
    assert greedy[0].split()[:7] == ["Greedy()", "-0.36", "0.67", "0.25", "0.25", "3", "12"]
    assert greedy[1].strip() == "bcabcabcabca"


def test_decoders_of_ones_own(unspool, loaded):
    out = unspool(*ASK, "--decoder", "Greedy()", "--decoder", "Sample(TopP(0.9))", "--json")[1]
    records = [json.loads(line) for line in out.splitlines()]
    assert [(r["decoder"], r["spec"]) for r in records] == [
        ("Greedy()", "Greedy()"),
        ("Sample(TopP(0.9))", repr(us.Sample(us.TopP(0.9)))),
    ]


def test_a_short_text_before_the_measured_ones_is_not_timed(unspool, loaded, monkeypatch):
    real, limits = us.generate, []

    def generate(model, texts, decoder, **options):
        limits.append(options["max_new_tokens"])
        return real(model, texts, decoder, **options)

    monkeypatch.setattr(us, "generate", generate)
    monkeypatch.setattr("unspool.cli.compare.perf_counter", lambda: 10.0 * len(limits))
    out = unspool(*ASK, "--decoder", "Greedy()", "--decoder", "Beam(2)", "--json")[1]
    assert limits == [2, 12, 2, 12]
    # One call passes between the two readings of the clock: the measured one.
    assert [json.loads(line)["tokens_per_second"] for line in out.splitlines()] == [1.2, 1.2]


def test_json_holds_the_measures(unspool, loaded):
    (line,) = unspool(*ASK, "--decoder", "Greedy()", "--json")[1].splitlines()
    record = json.loads(line)
    assert record.pop("mean_logp") == pytest.approx(-0.356675, abs=1e-5)  # ln 0.7
    assert len(record.pop("logps")) == len(record.pop("tokens")) == 12
    assert record.pop("tokens_per_second") > 0
    assert record.pop("rep_4") == pytest.approx(6 / 9)
    assert record == {
        "decoder": "Greedy()",
        "spec": "Greedy()",
        "prompt": "a",
        "text": "bcabcabcabca",
        "finish_reason": "length",
        "seed": 1,
        "distinct_1": 0.25,
        "distinct_2": 0.25,
        "approximate_loop": False,
        "loop": 3,
        "length": 12,
    }


def test_many_prompts(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a\nb\n")
    argv = ("compare", "--prompts", path, "--decoder", "Greedy()", "--max-new-tokens", "12")
    records = [json.loads(line) for line in unspool(*argv, "--json")[1].splitlines()]
    assert [(r["prompt"], r["text"][:3]) for r in records] == [("a", "bca"), ("b", "cab")]
    table = unspool(*argv)[1]
    assert table.startswith("2 prompts; the texts below continue the first: a\n")
    assert " 2/2 " in table


def test_a_repeated_prompt_is_its_next_sample(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a\nb\n" + "a\n" * 5)
    argv = (
        "compare",
        "--prompts",
        path,
        "--decoder",
        "Sample()",
        "--seed",
        "1",
        "--max-new-tokens",
        "12",
        "--json",
    )
    found = [json.loads(line)["tokens"] for line in unspool(*argv)[1].splitlines()]
    six = us.generate(us.load("letters"), "a", us.Sample(), n=6, seed=1, max_new_tokens=12)
    assert [found[0], *found[2:]] == [list(out.tokens) for out in six]
    assert len({out.tokens for out in six}) > 3


def test_the_report(unspool, loaded, tmp_path):
    path = tmp_path / "report.html"
    status, _, err = unspool(*ASK, *TWO, "--html", path)
    assert status == 0
    assert err == f"unspool: wrote {path}\n"
    page = path.read_text()
    assert page.startswith("<!doctype html>")
    assert "Greedy()" in page
    assert "Sample(TopP(0.9))" in page


def test_a_report_that_cannot_be_written_fails_before_the_work(unspool, loaded, tmp_path, monkeypatch):
    monkeypatch.setattr(us, "generate", lambda *args, **options: pytest.fail("work was done"))
    status, _, err = unspool(*ASK, "--html", tmp_path / "no" / "report.html")
    assert status == 2
    assert f"report.html: there is no folder {tmp_path / 'no'}" in err


def test_markup_in_a_prompt_is_not_obeyed(unspool, loaded, monkeypatch):
    from unspool.cli import compare

    monkeypatch.setattr(compare, "render", lambda *args: "[bold]a[/bold]\x1b[2J")
    monkeypatch.setattr(
        us,
        "generate",
        lambda model, texts, search, **o: [us.Output("[red]", (1,), (-1.0,), (-1.0,), "length", 1)],
    )
    out = unspool(*ASK)[1]
    assert out.startswith("[bold]a[/bold]�[2J\n")
    assert "[red]" in out


def test_a_decoder_that_fails_is_named(unspool, loaded, monkeypatch):
    def generate(*args, **options):
        raise ValueError("this model has no weight matrix")

    monkeypatch.setattr(us, "generate", generate)
    assert unspool(*ASK, "--decoder", "Greedy()") == (
        2,
        "",
        "unspool: decoder Greedy(): this model has no weight matrix\n",
    )


def failing(monkeypatch, error):
    """Every sampling fails; the others work."""
    real = us.generate

    def generate(model, texts, search, **options):
        if isinstance(search, us.Sample):
            raise error
        return real(model, texts, search, **options)

    monkeypatch.setattr(us, "generate", generate)


SPECS = ("Greedy()", "Sample(TopP(0.9))", "Beam(2)")
THREE = tuple(word for spec in SPECS for word in ("--decoder", spec))


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(ValueError("not so"), 2, "not so"), (RuntimeError("out of memory"), 1, "RuntimeError: out of memory")],
)
def test_the_others_go_on_after_one_failed(unspool, loaded, monkeypatch, tmp_path, error, status, said):
    failing(monkeypatch, error)
    path = tmp_path / "report.html"
    found, out, err = unspool(*ASK, *THREE, "--html", path)
    assert found == status
    assert f"unspool: decoder Sample(TopP(0.9)): {said}\n" in err
    assert re.findall(r"^ *((?:Greedy|Sample|Beam)\(.*?\)) ", out, re.MULTILINE) == [
        "Greedy()",
        "Beam(2)",
    ]
    page = path.read_text()
    assert "Not compared" in page
    assert said in page
    assert "2 decoders" in page


def test_rows_are_saved_as_they_come(unspool, loaded, monkeypatch, tmp_path):
    failing(monkeypatch, KeyboardInterrupt())
    path = tmp_path / "report.html"
    status, out, _ = unspool(*ASK, *THREE, "--html", path, "--json")
    assert status == 130
    assert [json.loads(line)["decoder"] for line in out.splitlines()] == ["Greedy()"]
    assert "1 decoder, 1 prompt" in path.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    status, out, _ = unspool(*ASK, *THREE)
    assert status == 130
    assert "Greedy()" in out


def test_a_failed_command_leaves_no_report(unspool, loaded, monkeypatch, tmp_path):
    failing(monkeypatch, ValueError("no"))
    assert unspool(*ASK, "--decoder", "Sample()", "--html", tmp_path / "a.html")[0] == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", ["kerbs", "narrow"])
def test_by_default_what_cannot_work_is_left_out(unspool, request, model):
    run = request.getfixturevalue(model)
    argv = ("compare", "ab", "--model", run, "--max-new-tokens", "3", "--seed", "1", "--json")
    status, out, err = unspool(*argv)
    assert status == 0
    decoders = [json.loads(line)["decoder"] for line in out.splitlines()]
    left = ["Sample(BasisAware(0.1))"] if model == "kerbs" else []
    assert decoders == [spec for spec in DEFAULT_DECODERS if spec not in left]
    if left:
        assert err.startswith("unspool: Sample(BasisAware(0.1)) is left out: BasisAware needs the matrix")
        status, out, err = unspool(*argv, "--decoder", *left)
        assert (status, out) == (2, "")
    else:
        assert err == ""


def test_a_report_takes_the_place_of_no_pipe_and_no_link(unspool, loaded, tmp_path):
    argv = ("compare", "a", "--decoder", "Greedy()", "--max-new-tokens", "2", "--html")
    pipe, page, link = tmp_path / "pipe", tmp_path / "page.html", tmp_path / "link.html"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert unspool(*argv, pipe, "--decoder", "Beam(2)")[0] == 0
    assert os.read(reader, 1 << 20).count(b"<!doctype html>") == 1  # the whole page, and no page of a part
    os.close(reader)
    assert pipe.is_fifo()
    page.write_text("old")
    link.symlink_to(page)
    assert unspool(*argv, link)[0] == 0
    assert link.is_symlink()
    assert page.read_text().startswith("<!doctype html>")
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "page.html", "link.html"}


TEXT = "a long way up the stairs of the lighthouse,\nand a longer way down"
ROW = DecoderRow(
    "Sample(Temperature(0.8), TopP(0.95), RepetitionPenalty(1.2))",
    "S()",
    (Output(TEXT, (1, 2, 3), (-1.0,) * 3, (-1.0,) * 3, "eos", 0),),
    2.0,
)


@pytest.fixture
def shown(terminal, monkeypatch):
    """What a terminal of so many columns shows, without its colours."""

    def show(columns, rows=(ROW,), prompts=("up",)):
        monkeypatch.setenv("COLUMNS", str(columns))
        screen = terminal()
        print_comparison(rows, prompts)
        return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()

    return show


@pytest.mark.parametrize("columns", [20, 40, 60, 89, 90, 140])
def test_nothing_is_lost_at_any_width(shown, columns):
    lines = shown(columns)
    assert max(map(len, lines)) <= columns
    said = re.sub(r"\s", "", "".join(lines))
    for word in ("lighthouse", "⏎", *("-1.00", "1.5", "log p".replace(" ", ""), "tok/s")):
        assert word in said
    if columns < 90:
        assert re.sub(r"\s", "", TEXT.replace("\n", "⏎")) in said


def test_a_narrow_terminal_gives_the_text_its_whole_width(shown):
    lines = shown(60)
    (at,) = (n for n, line in enumerate(lines) if line.startswith("a long way"))
    assert len(lines[at]) > 45
    assert any(line.startswith("log p -1.00  rep-4 0.00") for line in lines)


def test_a_wide_one_has_a_table(shown):
    header = next(line for line in shown(120) if "decoder and its text" in line)
    assert all(name in header for name in COLUMNS)


def test_generated_control_characters_do_not_reach_the_terminal(shown):
    evil = DecoderRow("x", "x", (Output("[red]\x1b[2J\u202eabc", (1,), (-1.0,), (-1.0,), "eos", 0),), 1.0)
    for columns in (60, 120):
        said = "".join(shown(columns, [evil], ["[bold]\x07p"]))
        assert "[red]�[2J�abc" in said
        assert "[bold]�p" in said


def test_the_measures_in_their_order():
    assert ROW.cells() == ("-1.00", "0.00", "1.00", "0.67", "–", "3", "1.5")


def test_without_a_terminal_there_is_room(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_comparison([ROW], ["up", "down"])
    out = capsys.readouterr().out
    assert out.startswith("2 prompts; the texts below continue the first: up\n")
    assert "decoder and its text" in out
