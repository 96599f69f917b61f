"""docs/lab.md follows the committed numbers of docs/lab.json and the current criteria."""

from unspool.lab.claims import CLAIMS
from unspool.lab.report import FIGURES, markdown_page
from unspool.lab.results import findings_of_file


def test_the_page_follows_the_numbers(root):
    found = findings_of_file(root / "docs/lab.json", CLAIMS)
    page = (root / "docs/lab.md").read_text(encoding="utf-8")
    assert page == markdown_page(found), "run `make docs`"


def test_every_claim_was_run_in_full_and_has_its_figure(root):
    for it in findings_of_file(root / "docs/lab.json", CLAIMS):
        assert it.results, it.claim.name
        assert not any(result.quick for result in it.results)
        assert (root / "docs" / FIGURES / f"{it.claim.name}.svg").exists()
    assert len(CLAIMS) >= 25


def test_no_figure_is_left_of_a_claim_that_is_gone(root):
    drawn = {path.stem for path in (root / "docs" / FIGURES).iterdir()}
    assert drawn == {claim.name for claim in CLAIMS}
