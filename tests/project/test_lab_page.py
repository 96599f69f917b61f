"""docs/lab.md follows the committed numbers of docs/lab.json and the registered plans."""

from unspool.lab.claims import CLAIMS
from unspool.lab.registry import digest
from unspool.lab.report import FIGURES, markdown_page
from unspool.lab.results import findings_of_file


def test_the_page_follows_the_numbers(root):
    found = findings_of_file(root / "docs/lab.json", CLAIMS)
    page = (root / "docs/lab.md").read_text(encoding="utf-8")
    assert page == markdown_page(found), "run `make docs`"


def test_results_are_complete_and_have_figures(root):
    for it in findings_of_file(root / "docs/lab.json", CLAIMS):
        assert it.verdict not in ("incomplete", "quick run"), it.claim.name
        assert (root / "docs" / FIGURES / f"{it.claim.name}.svg").exists() == bool(it.results), it.claim.name


def test_no_result_follows_an_older_plan(root):
    for it in findings_of_file(root / "docs/lab.json", CLAIMS):
        assert {result.plan for result in it.results} <= {digest(it.claim.plan())}, it.claim.name


def test_no_figure_is_left_of_a_claim_that_is_gone(root):
    drawn = {path.stem for path in (root / "docs" / FIGURES).iterdir()}
    assert drawn <= {claim.name for claim in CLAIMS}
