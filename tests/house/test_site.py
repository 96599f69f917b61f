"""The site: links lead to where their targets are in it, and nothing is fetched from elsewhere."""

import pytest


@pytest.fixture(scope="module")
def site(script):
    return script("docs/site.py")


def test_where_files_of_the_repository_are(site):
    assert site.placed("README.md") == "project/README.md"
    assert site.placed("docs/walk.md") == "walk.md"
    assert site.placed("docs/img/kappa.svg") == "img/kappa.svg"
    assert site.placed("src/unspool/__init__.py") == "source/src/unspool/__init__.py.txt"
    assert site.placed("docs/generate.py") == "source/docs/generate.py.txt"


def test_links_are_led_there(site):
    page = "[a](../src/unspool/__init__.py) [b](adr/) [c](walk.md#x) [d](https://x.y) ![e](img/kappa.svg) [f](#g)"
    assert site.relinked(page, "walk.md") == (
        "[a](source/src/unspool/__init__.py.txt) [b](source/docs/adr.txt) [c](walk.md#x) [d](https://x.y) "
        "![e](img/kappa.svg) [f](#g)"
    )
    assert site.relinked("[a](docs/walk.md) [b](LICENSE)", "project/README.md") == (
        "[a](../walk.md) [b](../source/LICENSE.txt)"
    )


def test_code_and_what_is_not_there_stay_as_they_are(site):
    page = "```\n[a](../LICENSE)\n```\n\n    [b](../LICENSE)\n\n[c](../nowhere.md)"
    assert site.relinked(page, "walk.md") == page


def test_a_folder_is_shown_by_its_names(site):
    assert "0001-start-returns-the-first-step.md" in site.shown("docs/adr").splitlines()
    assert site.shown("LICENSE").lstrip().startswith("Apache")


def test_every_public_name_is_in_the_reference(site, root):
    import unspool
    import unspool.diagnose
    import unspool.evaluate

    for package in (unspool, unspool.evaluate, unspool.diagnose):
        page = site.reference(package.__name__, root / "src")
        named = {line.rpartition(".")[2] for line in page.splitlines() if line.startswith("::: ")}
        assert named == set(package.__all__)


def test_a_document_that_is_not_placed_stands_under_more(site, tree):
    folder = tree({"a.md": "", "b.md": "", "c.py": "", "d/e.md": ""})
    assert site.unplaced(["a.md", {"x": ["d/e.md"]}], folder) == ["b.md"]
    assert site.unplaced([{"x": ["b.md"]}, "a.md"], folder) == []


def test_the_one_foreign_script_is_ours(site):
    tag = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
    assert site.at_home(tag, "adr/x.html") == '<script src="../worker_in_frame.js"></script>'
    assert site.at_home(tag, "404.html") == '<script src="worker_in_frame.js"></script>'
