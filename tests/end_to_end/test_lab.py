"""Every experiment of the lab runs, quickly, and makes a page; what the criteria say of so little means nothing."""

import json
from pathlib import Path

import pytest

from unspool.cli import main
from unspool.lab.claims import CLAIMS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


def test_every_claim_is_measured_quickly(folder, capsys):
    assert main(["lab", "run", "--all", "--quick", "--folder", str(folder), "--json"]) == 0
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    assert [it["name"] for it in found] == [claim.name for claim in CLAIMS]
    assert all(it["numbers"] for it in found)
    assert "failed" not in err


def test_it_makes_a_page(folder, tmp_path, capsys):
    argv = ["lab", "report", "--quick", "--folder", str(folder), "--html", str(tmp_path / "lab.html")]
    assert main(argv) == 0
    assert "not run yet" not in capsys.readouterr().err
    page = (tmp_path / "lab.html").read_text(encoding="utf-8")
    assert page.count("<svg") == len(CLAIMS)
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")


def test_names_are_those_of_the_files(folder):
    for claim in CLAIMS:
        module = claim.measure.__module__
        assert module == f"unspool.lab.claims.{claim.name}"
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)


def test_every_claim_is_complete_and_its_papers_are_known():
    bib = (Path(__file__).resolve().parents[2] / "papers.bib").read_text(encoding="utf-8")
    for claim in CLAIMS:
        assert claim.statement.endswith(".")
        assert claim.criterion
        assert len(claim.measured) > 40
        assert [key for key in claim.source.papers if f"{{{key}," not in bib] == [], claim.name
