from unspool.lab.report import markdown_page, write_figures
from unspool.lab.results import Finding
from unspool.lab.running import measured


def test_the_page_names_its_figures_and_they_are_there(coin, tmp_path):
    found = [Finding(coin, tuple(measured(coin, seed, False) for seed in (1, 2)))]
    page = markdown_page(found)
    for part in (
        "**1 claims: 1 mixed.** Seeds 1, 2",
        "| ≈ | [A coin <b>lands</b> \\| on its head.](#coin) |",
        "## coin",
        "| heads > 0.55 | 1 of 2 seeds |",
        "(img/lab/coin.svg)",
        "| heads | 0.55 ± 0.071 | 0.5 to 0.6 |",
    ):
        assert part in page
    write_figures(found, tmp_path / "lab.md")
    assert (tmp_path / "img/lab/coin.svg").exists()


def test_what_was_not_run_has_no_figure(coin, tmp_path):
    page = markdown_page([Finding(coin, ())])
    assert "svg" not in page
    write_figures([Finding(coin, ())], tmp_path / "lab.md")
    assert list(tmp_path.iterdir()) == []
