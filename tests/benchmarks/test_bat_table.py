"""The study of basis-aware sampling: its plan comes first, no finished cell is lost, and its measures are right."""

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import bat_table
import unspool as us
from bat import cells, measures, plan, report, strictness
from bat.languages import language_support
from unspool.basis import BasisTest
from unspool.lab.registry import digest

SCRIPT = Path(bat_table.__file__)


# ---- the file of cells


def test_finished_cells_are_read_again(tmp_path):
    path = tmp_path / "new" / "cells.jsonl"
    with cells.Cells(path) as file:
        file.add("one", {"value": 0.25})
    with cells.Cells(path) as again:
        again.add("two", {"value": 0.5})
        assert again.found == {"one": {"value": 0.25}, "two": {"value": 0.5}}


@pytest.mark.parametrize("torn", ['{"cell": "two", "val', '{"cell": "two", "value": 0.5}', "{"])
def test_a_line_without_an_end_is_cut_off(tmp_path, torn):
    path = tmp_path / "cells.jsonl"
    whole = '{"cell": "one", "value": 0.25}\n'
    path.write_text(whole + torn, encoding="utf-8")
    with cells.Cells(path) as file:
        assert list(file.found) == ["one"]
        file.add("two", {"value": 0.5})
    assert path.read_text(encoding="utf-8") == whole + '{"cell": "two", "value": 0.5}\n'


def test_a_damaged_line_is_named_and_kept(tmp_path):
    path = tmp_path / "cells.jsonl"
    path.write_text('{"cell": "one"}\n{"cell"\n{"cell": "three"}\n', encoding="utf-8")
    with pytest.raises(SystemExit, match="line 2"):
        cells.Cells(path)
    assert path.read_text(encoding="utf-8").count("\n") == 3


def test_two_runs_cannot_share_a_file(tmp_path):
    with cells.Cells(tmp_path / "cells.jsonl"), pytest.raises(SystemExit, match="in use"):
        cells.Cells(tmp_path / "cells.jsonl")
    cells.Cells(tmp_path / "cells.jsonl").__exit__()


# ---- the plan


def arguments(path, *more):
    data = ["--data", str(path), "--match", str(path), "--json", str(path.with_suffix(".cells"))]
    return bat_table.arguments([*data, *more])


def test_the_plan_is_first_and_cannot_change(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a"}\n', encoding="utf-8")
    with cells.Cells(tmp_path / "cells") as file:
        plan.register(file, plan.make_plan(arguments(path)))
        plan.register(file, plan.make_plan(arguments(path)))
        assert list(file.found) == ["plan"]
        for more in (["--seeds", "6"], ["--rank", "19"], ["--samplers", "eta"], ["--shares", "0.1"]):
            with pytest.raises(SystemExit, match="another plan"):
                plan.register(file, plan.make_plan(arguments(path, *more)))
        path.write_text('{"text": "b"}\n', encoding="utf-8")
        with pytest.raises(SystemExit, match="different: human texts"):
            plan.register(file, plan.make_plan(arguments(path)))


def test_a_plan_states_what_can_be_decided(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("", encoding="utf-8")
    both = plan.make_plan(arguments(path))["primary"]
    assert [it["name"] for it in both] == ["BA-η against η", "min-p against top-p"]
    small = plan.make_plan(arguments(path, "--texts", "300"))["primary"]
    assert small[0]["power"] < both[0]["power"] <= 1
    for more in (["--texts", "299"], ["--seeds", "1"]):  # no MAUVE, no interval
        assert plan.make_plan(arguments(path, *more))["primary"] == []
    one = plan.make_plan(arguments(path, "--shares", "0.25"))["primary"]
    assert [it["name"] for it in one] == ["BA-η against η"]


@pytest.mark.parametrize(
    ("low", "high", "decided"),
    [
        (0.011, 0.03, "supported"),
        (-0.02, 0.009, "contradicted"),
        (0.005, 0.03, "cannot tell"),
        (-math.inf, math.inf, "cannot tell"),
    ],
)
def test_a_verdict_follows_from_the_interval(low, high, decided):
    assert plan.verdict(low, high, 5, 5) == decided
    assert plan.verdict(low, high, 4, 5) == "cannot tell (4 of 5 seeds)"


def test_the_primary_quantities_are_measured_first(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("", encoding="utf-8")
    args = arguments(path, "--texts", "300", "--seeds", "2", "--language-seeds", "1")
    with cells.Cells(tmp_path / "cells") as file:
        plan.register(file, plan.make_plan(args))
        names = [name for name, _, _ in bat_table.Study(args).cells(file)]
    assert len(names) == len(set(names)) == 2 + 2 * (1 + 1 + 7 * 2) + 2
    first = ["0.1 top-p", "0.1 min-p", "0.25 eta", "0.25 top-p", "0.25 BA-η", "0.25 min-p"]
    for seed in (1, 2):
        at = names.index(f"human {seed}")
        assert names[at + 1 : at + 7] == [f"text {it} {seed}" for it in first]
    assert names.index("human 2") == names.index("human 1") + 7


# ---- measures


def test_the_trigram_model_by_hand():
    model = measures.TrigramModel([[0, 1, 2], [0, 1, 2], [0, 1, 3], [4, 1, 2]], 6)
    # Different bigrams: 0 1, 1 2, 1 3, 4 1. Different trigrams with 1 in the middle: 0 1 2, 0 1 3, 4 1 2.
    lowest = {2: 2 / 10, 3: 2 / 10, 5: 1 / 10}
    lower = {w: (max(n - 0.75, 0) + 0.75 * 2 * lowest[w]) / 3 for w, n in ((2, 2), (3, 1), (5, 0))}
    want = {w: (max(n - 0.75, 0) + 0.75 * 2 * lower[w]) / 3 for w, n in ((2, 2), (3, 1), (5, 0))}
    assert [model.p(0, 1, w) for w in want] == pytest.approx(list(want.values()))
    assert model.p(5, 1, 2) == pytest.approx(lower[2])  # the pair was never seen
    assert model.p(5, 5, 2) == pytest.approx(lowest[2])  # nor the word
    assert model.nll([[4, 0, 1]], [[2, 5]]) == pytest.approx(-(math.log(want[2]) + math.log(lowest[5])) / 2)


@pytest.mark.parametrize("context", [(0, 1), (1, 2), (3, 3), (7, 1), (7, 7)])
def test_the_trigram_model_is_a_distribution(context):
    rows = torch.randint(6, (30, 9), generator=torch.Generator().manual_seed(1)).tolist()
    model = measures.TrigramModel(rows, 8)
    assert sum(model.p(*context, w) for w in range(8)) == pytest.approx(1)


class Words:
    """A tokenizer and model of sentences whose states are the ids themselves."""

    def __call__(self, texts, **_):
        rows = [[int(it) for it in text.split()] for text in texts]
        length = max(map(len, rows))
        ids = torch.tensor([row + [9] * (length - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
        return {"input_ids": ids, "attention_mask": mask}


class States:
    def __call__(self, input_ids, attention_mask):
        self.last_hidden_state = torch.stack([input_ids, input_ids.square()], dim=-1).float()
        return self


def test_a_sentence_is_the_mean_of_its_own_states():
    model = measures.SentenceModel.__new__(measures.SentenceModel)
    model.tokenizer, model.model = Words(), States()
    found = model.features(["1 3", "2 2 2 2", "3"], batch=2)
    want = torch.nn.functional.normalize(torch.tensor([[2.0, 5.0], [2.0, 4.0], [3.0, 9.0]]), dim=-1)
    assert found.tolist() == [pytest.approx(row) for row in want.tolist()]


# ---- equal strictness


@pytest.fixture(scope="module")
def distributions():
    generator = torch.Generator().manual_seed(3)
    matrix_VD = torch.randn(40, 6, generator=generator)
    logp_NV = (2 * torch.randn(25, 6, generator=generator) @ matrix_VD.T).log_softmax(-1)
    return matrix_VD, logp_NV


@pytest.mark.parametrize(
    "decoder",
    [
        *("Sample()", "Sample(TopP(0.7))", "Sample(Eta(0.1))", "Sample(BasisAware(0.2, rank=3))"),
        *("Sample(BasisAware(EtaTau(0.5), rank=3))", "Sample(BasisAware(0.999, rank=0))"),
    ],
)
def test_a_token_is_kept_alone_as_it_is_among_all(distributions, decoder):
    matrix_VD, logp_NV = distributions
    search = us.parse(decoder)
    test = BasisTest(matrix_VD, search.pick.rank) if hasattr(search.pick, "rank") else None
    kept_NV = strictness.kept_tokens(search, logp_NV, test)
    assert kept_NV.any(1).all()
    alone_NV = torch.stack(
        [
            strictness.kept_tokens(search, logp_NV, test, torch.full((len(logp_NV),), token))
            for token in range(logp_NV.shape[1])
        ],
        dim=1,
    )
    nothing_N = ~alone_NV.any(1)  # then the most probable token is drawn
    assert alone_NV[~nothing_N].equal(kept_NV[~nothing_N])
    assert kept_NV[nothing_N].sum(1).eq(1).all()
    assert bool(nothing_N.any()) == ("0.999" in decoder)
    assert bool(kept_NV.all()) == (decoder == "Sample()")


def test_samplers_reject_equal_shares_of_the_words_of_a_language():
    names = ("epsilon", "top-p", "BA-ε", "min-p")
    found = language_support("low entropy", 1, [0.1, 0.25], names, 60, lambda: None, 300, 100)["support"]
    assert found.keys() == {"0 sample", *(f"{share} {name}" for share in (0.1, 0.25) for name in names)}
    assert found["0 sample"]["mass_recall"] == pytest.approx(1)
    for key, it in found.items():
        assert 1 - it["mass_recall"] == pytest.approx(float(key.split()[0]), abs=0.09)
        assert it["mass_precision"] >= found["0 sample"]["mass_precision"]


# ---- the report


def test_differences_are_paired_by_seed():
    found = {
        f"{share} {sampler} {seed}": {"share": share, "sampler": sampler, "seed": seed, "m": value}
        for share, sampler, seed, value in [
            *((0.1, "a", 1, 5), (0.1, "b", 1, 3), (0.1, "a", 2, 8), (0.1, "b", 2, 4)),
            *((0.2, "a", 2, 1), (0.2, "b", 2, 1), (0.2, "a", 3, 9), (0.2, "b", 3, 1)),
        ]
    }
    assert report.differences(found, "a", "b", [0.1], "m") == [2, 4]
    assert report.differences(found, "a", "b", [0.1, 0.2], "m") == [2]  # seed 2: (4 + 0) / 2
    assert report.differences(found, "a", "b", [0.1], "other") == []


def test_one_seed_has_no_interval():
    assert report.shown([0.5], report.percent) == "50.0"
    assert report.shown([], report.percent) == "–"
    assert report.shown([0.4, 0.6], report.percent) == "50.0 (-77.1 to 177.1)"  # t = 12.706 with 1 degree


def test_the_tables_of_a_page_are_replaced(monkeypatch):
    monkeypatch.setattr(
        report, "tables", lambda found: {"A": "| a | b |\n|---|--:|\n| 1 | 2 |", "C": "| c |\n|---|"}
    )
    page = "Text.\n\n| a | b |\n| --- | --: |\n| old | row |\n| old | row |\n\nMore.\n| c |\n"
    want = "Text.\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\nMore.\n| c |\n|---|\n"
    assert report.update_page(page, {}) == want
    assert report.update_page(want, {}) == want
    with pytest.raises(SystemExit, match="no table for A"):
        report.update_page("Text.\n", {})


ROOT = Path(__file__).resolve().parents[2]


def test_the_published_tables_are_those_of_the_published_numbers():
    found = cells.read_cells((ROOT / "docs/results/bat.jsonl").read_bytes())[0]
    page = (ROOT / "docs/results/bat.md").read_text(encoding="utf-8")
    assert page == report.update_page(page, found)
    assert found["plan"]["hash"] == digest(found["plan"]["plan"])
    assert found["plan"]["hash"] in page


# ---- the whole run, killed


SMALL = ["--model", "bible", "--weights", "float32", "--texts", "3", "--seeds", "2", "--prompt-tokens", "8"]
SMALL += ["--new-tokens", "5", "--match-texts", "4", "--other-texts", "2", "--language-seeds", "0"]
SMALL += ["--samplers", "eta", "BA-η", "--shares", "0.1", "--rank", "5"]


@pytest.fixture
def command(tmp_path):
    words = ["and", "the", "king", "said", "to", "his", "people", "go", "up", "from", "your", "land"]
    for name, step in (("data", 5), ("match", 7)):
        rows = [
            " ".join(words[(at * step + i * (at + 1)) % len(words)] for i in range(30)) for at in range(12)
        ]
        lines = "".join(json.dumps({"text": row}) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    data = ["--data", str(tmp_path / "data.jsonl"), "--match", str(tmp_path / "match.jsonl")]
    return [*data, *SMALL]


def without_times(path):
    found = cells.read_cells(path.read_bytes())[0]
    found["plan"].pop("date")
    for cell in found.values():
        cell.pop("seconds", None)
        cell.get("stats", {}).pop("milliseconds", None)
    return found


def test_a_killed_run_continues_without_loss(command, tmp_path, capsys):
    killed, whole = tmp_path / "killed.jsonl", tmp_path / "whole.jsonl"
    run = [sys.executable, str(SCRIPT), *command, "--json", str(killed)]
    kills, before = 0, b""
    while kills < 2:
        process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (
            not killed.exists() or killed.read_bytes().count(b"\n") < 3 * kills + 3
        ):
            time.sleep(0.01)
        assert process.poll() is None, "it ended before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = killed.read_bytes()
        assert after.startswith(before[: before.rfind(b"\n") + 1])
        before, kills = after, kills + 1
    assert before.count(b"\n") < 11
    assert bat_table.main([*command, "--json", str(killed)]) == 0
    first = capsys.readouterr().out
    assert bat_table.main([*command, "--json", str(whole)]) == 0
    capsys.readouterr()
    assert without_times(killed) == without_times(whole)
    names = ["plan", "settings", "other texts", "human 1", "human 2"]
    names += [f"text {it} {seed}" for seed in (1, 2) for it in ("0 sample", "0.1 eta", "0.1 BA-η")]
    assert list(without_times(killed)) == names
    assert "| 10% | BA-η − η |" in first
    assert bat_table.main(["--json", str(killed), "--show"]) == 0
    assert capsys.readouterr().out == first


def test_help_shows_an_example(capsys):
    with pytest.raises(SystemExit, match="0"):
        bat_table.arguments(["--help"])
    assert "python benchmarks/bat_table.py --data webtext.test.jsonl" in capsys.readouterr().out


def test_the_texts_are_named_if_they_are_missing(capsys):
    with pytest.raises(SystemExit):
        bat_table.arguments(["--json", "x.jsonl"])
    assert "--data and --match" in capsys.readouterr().err
