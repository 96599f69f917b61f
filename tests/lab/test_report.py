import re

from unspool.lab.report import (
    CRITERIA,
    LINKED_CRITERIA,
    draw_finding,
    figure_svg,
    html_page,
    markdown_page,
    write_figures,
)
from unspool.lab.results import Finding
from unspool.lab.running import measure_once


def test_the_html_page_has_no_scripts_and_no_external_resources(coin):
    page = html_page([Finding(coin, tuple(measure_once(coin, seed, False) for seed in (1, 2)))])
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


def test_a_claim_without_results_is_not_run(coin):
    page = html_page([Finding(coin, ())], quick=True)
    assert "not run" in page
    assert "verdicts mean nothing" in page
    assert "<svg" not in page


def test_both_pages_say_that_criteria_were_changed(coin):
    page = html_page([Finding(coin, ())])
    assert "before the first" not in " ".join(page.split())
    assert CRITERIA in page
    assert LINKED_CRITERIA in markdown_page([Finding(coin, ())])


def test_the_markdown_page_links_to_its_figures(coin, tmp_path):
    findings = [Finding(coin, tuple(measure_once(coin, seed, False) for seed in (1, 2)))]
    page = markdown_page(findings)
    for part in (
        "**1 claims: 1 mixed.** Seeds 1, 2",
        "| ≈ | [A coin <b>lands</b> \\| on its head.](#coin) |",
        "## coin",
        "| heads > 0.55 | 1 of 2 seeds |",
        "(img/lab/coin.svg)",
        "| heads | 0.55 ± 0.071 | 0.5 to 0.6 |",
    ):
        assert part in page
    write_figures(findings, tmp_path / "lab.md")
    assert (tmp_path / "img/lab/coin.svg").exists()


def test_a_claim_without_results_has_no_figure(coin, tmp_path):
    page = markdown_page([Finding(coin, ())])
    assert "svg" not in page
    write_figures([Finding(coin, ())], tmp_path / "lab.md")
    assert list(tmp_path.iterdir()) == []


def test_a_figure_is_the_same_every_time(coin, tmp_path):
    finding = Finding(coin, (measure_once(coin, 1, False),))
    svg = figure_svg(finding)
    assert svg == figure_svg(finding)
    assert svg.startswith("<svg")
    draw_finding(finding, tmp_path / "img/coin.svg")
    assert (tmp_path / "img/coin.svg").read_text().endswith(svg)
