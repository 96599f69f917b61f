import re

from unspool.lab.report import CRITERIA, html_page, markdown_page
from unspool.lab.results import Finding
from unspool.lab.running import measured


def test_the_page_is_whole_in_itself(coin):
    page = html_page([Finding(coin, tuple(measured(coin, seed, False) for seed in (1, 2)))])
    assert "<script" not in page
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)) == []
    for part in (
        "1 claims: 1 mixed",
        "Seeds 1, 2",
        "heads &gt; 0.55",
        "1 of 2 seeds",
        "0.55 ± 0.071",
        "<svg",
    ):
        assert part in page
    assert "<b>lands</b>" not in page
    assert "small coin" in page


def test_what_was_not_run_says_so(coin):
    page = html_page([Finding(coin, ())], quick=True)
    assert "not run" in page
    assert "verdicts mean nothing" in page
    assert "<svg" not in page


def test_the_page_says_that_criteria_were_changed_as_the_document_does(coin):
    page = html_page([Finding(coin, ())])
    assert "before the first" not in " ".join(page.split())
    assert CRITERIA in page
    assert CRITERIA in markdown_page([Finding(coin, ())])
