"""Every experiment of the lab runs, quickly, and makes a page; the numbers mean nothing."""

import json

import pytest

from unspool.cli import main
from unspool.lab.claims import CLAIMS
from unspool.models.loading.model_names import is_installed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


def test_every_claim_has_a_quick_measurement(folder, capsys):
    assert main(["lab", "run", "--all", "--quick", "--folder", str(folder), "--json"]) == 0
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    missing = () if is_installed("smollm2") else [it.name for it in CLAIMS if "smollm2" in it.needs]
    assert [it["name"] for it in found] == [it.name for it in CLAIMS if it.name not in missing]
    assert all(it["numbers"] for it in found)
    assert all(("effect" in it["results"][0]["numbers"]) == (it["kind"] == "claim") for it in found)
    assert "failed" not in err


def test_the_report_has_a_figure_of_every_claim(folder, tmp_path, capsys):
    argv = ["lab", "report", "--quick", "--folder", str(folder), "--markdown", str(tmp_path / "lab.md")]
    assert main(argv) == 0
    assert "not measured yet" not in capsys.readouterr().err
    assert len(list((tmp_path / "img/lab").iterdir())) == len(CLAIMS)
    assert "quick run" in (tmp_path / "lab.md").read_text(encoding="utf-8")


def test_every_claim_is_complete():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.statement.endswith(".")
        assert len(claim.measured) > 40
        assert ", " in claim.source
