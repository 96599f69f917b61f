"""The documentation site: links resolve within it, and the navigation has every page."""

import tomllib

import pytest

import unspool
import unspool.decode
import unspool.diagnose
import unspool.evaluate


@pytest.fixture(scope="module")
def site(script):
    return script("docs/site.py")


def test_places_of_repository_files_in_the_site(site):
    assert site.place("README.md") == "project/README.md"
    assert site.place("docs/basis.md") == "basis.md"
    assert site.place("docs/img/kappa.svg") == "img/kappa.svg"
    assert site.place("src/unspool/__init__.py") == "source/src/unspool/__init__.py.txt"
    assert site.place("docs/generate.py") == "source/docs/generate.py.txt"


def test_links_point_into_the_site(site):
    page = "[a](../src/unspool/__init__.py) [b](adr/) [c](basis.md#x) [d](https://x.y) ![e](img/kappa.svg) [f](#g)"
    assert site.relink(page, "heads.md") == (
        "[a](source/src/unspool/__init__.py.txt) [b](source/docs/adr.txt) [c](basis.md#x) [d](https://x.y) "
        "![e](img/kappa.svg) [f](#g)"
    )
    assert site.relink("[a](docs/basis.md) [b](LICENSE)", "project/README.md") == (
        "[a](../basis.md) [b](../source/LICENSE.txt)"
    )
    assert site.linked_files(page, "heads.md") == {"src/unspool/__init__.py", "docs/adr"}


def test_code_and_broken_links_stay_unchanged(site):
    page = "```\n[a](../LICENSE)\n```\n\n    [b](../LICENSE)\n\n[c](../nowhere.md)"
    assert site.relink(page, "basis.md") == page


def test_a_folder_is_shown_as_a_list_of_names(site):
    assert "0001-start-returns-the-first-step.md" in site.as_text("docs/adr").splitlines()
    assert site.as_text("LICENSE").lstrip().startswith("Apache")


@pytest.mark.parametrize("package", [unspool, unspool.decode, unspool.evaluate, unspool.diagnose])
def test_every_public_name_has_a_reference_entry(package, site, root):
    page = site.api_page(package.__name__)
    entries = {line.rpartition(".")[2] for line in page.splitlines() if line.startswith("::: ")}
    subpackages = {
        name for name in package.__all__ if (root / "src/unspool" / name).is_dir() or name == "testing"
    }
    assert entries == set(package.__all__) - (subpackages if package is unspool else set())


def test_the_navigation_has_every_page(site, root):
    text = (root / "zensical.toml").read_text(encoding="utf-8")
    tomllib.loads(text)
    pages = {path.name for path in (root / "docs").glob("*.md")}
    pages |= {f"project/{name}" for name in site.PROJECT} | {f"api/{name}.md" for name in site.PACKAGES}
    assert {page for page in pages if f'"{page}"' not in text} == set()
