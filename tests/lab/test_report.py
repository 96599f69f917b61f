from unspool.lab.report import (
    draw_finding,
    figure_svg,
    markdown_page,
    write_figures,
)
from unspool.lab.results import Finding
from unspool.lab.running import measure_once


def test_quick_run_has_no_verdict(coin):
    quick = [Finding(coin, (measure_once(coin, 2, True),))]
    assert "1 claims: 1 no verdict (quick run)" in markdown_page(quick)
    assert "– **no verdict (quick run)**" in markdown_page(quick)


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
        "It is a small coin.",
    ):
        assert part in page
    write_figures(findings, tmp_path / "lab.md")
    assert (tmp_path / "img/lab/coin.svg").exists()


def test_a_claim_without_results_has_no_figure(coin, tmp_path):
    page = markdown_page([Finding(coin, ())])
    assert "– **not run**" in page
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
