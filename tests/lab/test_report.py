from unspool.lab.report import (
    draw_finding,
    figure_svg,
    markdown_page,
    write_figures,
)
from unspool.lab.results import Finding
from unspool.lab.running import measure_once


def finding(claim, seeds, quick=False):
    return Finding(claim, tuple(measure_once(claim, seed, quick) for seed in seeds))


def test_quick_run_has_no_verdict(coin):
    assert "1 claims: 1 quick run." in markdown_page([finding(coin, [2], quick=True)])
    assert "– **quick run**" in markdown_page([finding(coin, [2], quick=True)])


def test_the_markdown_page_has_effects_plans_and_figures(coin, tmp_path):
    findings = [finding(coin, range(101, 111))]
    page = markdown_page(findings)
    for part in (
        "1 claims: 1 supported. 10 measurements",
        "| ✔ supported | [A coin <b>lands</b> \\| on its head.](#coin) | 0.345 (0.",
        "## coin",
        "Primary effect: heads minus tails. It matters from 0.1; an interval below 0 contradicts the claim.",
        "10 seeds: the power is 1.00 for an effect of 0.3 with a standard deviation of seeds of 0.1.",
        "Not registered.",
        "(img/lab/coin.svg)",
        "| heads | 11.05 (10.8 to 11.3) | 10.6 to 11.5 |",
        "It is a small coin.",
    ):
        assert part in page
    write_figures(findings, tmp_path / "lab.md")
    assert (tmp_path / "img/lab/coin.svg").exists()


def test_checks_are_shown_apart(coin, edge):
    page = markdown_page([finding(coin, [101]), finding(edge, [101, 102, 103])])
    assert "1 checks: 1 holds." in page
    assert page.index("## Claims") < page.index("## Checks of the code") < page.index("## edge")
    assert "| there are few heads | 3 of 3 seeds |" in page
    assert "– incomplete" in page


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
