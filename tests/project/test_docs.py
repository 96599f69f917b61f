"""Documents: links resolve, named files exist, the changelog and the decision records keep their form."""

import re

import pytest

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def documents(root):
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def anchors(markdown):
    """The anchors that GitHub gives to the headings of a document."""
    headings = re.findall(r"^#+\s+(.*)$", FENCE.sub("", markdown), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def broken_links(path):
    found = []
    for link in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            found.append(link)
    return found


def changelog_faults(text):
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    releases = re.findall(r"^## (.*)$", text, re.MULTILINE)
    faults = [] if releases[:1] == ["[Unreleased]"] else ["the first section is not [Unreleased]"]
    faults += [r for r in releases[1:] if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", r)]
    return faults + [kind for kind in re.findall(r"^### (.*)$", text, re.MULTILINE) if kind not in kinds]


def test_every_relative_link_resolves(root):
    found = {path.relative_to(root).as_posix(): broken_links(path) for path in documents(root)}
    assert {name: links for name, links in found.items() if links} == {}


def test_a_broken_link_is_found(tree):
    root = tree(
        {
            "a.md": "# One Thing: here\n[x](b.md) [y](c.md) [z](#one-thing-here) [w](#nothing) [u](https://x.y/z)\n"
            "```\n[in code](nowhere)\n```\n![p](img.png) [v](b.md#two) [t](b.md#three)",
            "b.md": "## Two",
        }
    )
    assert broken_links(root / "a.md") == ["c.md", "#nothing", "img.png", "b.md#three"]


def missing_files(text, files):
    """Python files that a text names between backquotes and that do not exist."""
    named = dict.fromkeys(re.findall(r"`([\w/]+\.py)`", text))
    return [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)]


def test_documents_name_existing_files(root):
    # The lab log and the changelog describe the past; CONTRIBUTING.md and extend.md create files.
    exempt = {"CHANGELOG.md", "CONTRIBUTING.md", "lab-log.md", "extend.md"}
    folders = ("benchmarks", "docs", "recipes", "src", "tests")
    files = [
        path.relative_to(root).as_posix() for folder in folders for path in (root / folder).rglob("*.py")
    ]
    pages = {path: path.read_text(encoding="utf-8") for path in documents(root) if path.name not in exempt}
    assert {path.name: lost for path, page in pages.items() if (lost := missing_files(page, files))} == {}


def test_a_missing_file_is_found():
    assert missing_files("`a.py`, `folder/b.py`, `b.py` and `other/b.py`", ["src/folder/b.py"]) == [
        "a.py",
        "other/b.py",
    ]


def test_the_changelog_follows_keep_a_changelog(root):
    assert changelog_faults((root / "CHANGELOG.md").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "# Changelog\n",
        "## [0.1.0] - 2026-01-01\n## [Unreleased]\n",
        "## [Unreleased]\n### New\n",
        "## [Unreleased]\n## 0.1\n",
    ],
)
def test_a_fault_in_the_changelog_is_found(text):
    assert changelog_faults(text)


PATH_OF_A_TOKEN = "docs/how-it-works.md"
SOURCE = re.compile(r"\(\.\./(src/unspool/[\w/]+\.py)\)")


def test_the_path_of_a_token_has_eight_steps_through_at_most_25_files(root):
    page = (root / PATH_OF_A_TOKEN).read_text(encoding="utf-8")
    path = page.partition("## The path of one token")[2].partition("\n## ")[0]
    steps = re.findall(r"^(\d+)\. ", path, re.MULTILINE)
    assert steps == [str(number) for number in range(1, 9)]
    files = dict.fromkeys(SOURCE.findall(path))
    assert 10 < len(files) <= 25
    assert [file for file in files if not (root / file).is_file()] == []


def test_how_it_works_lists_every_package(root):
    page = (root / PATH_OF_A_TOKEN).read_text(encoding="utf-8")
    package = root / "src/unspool"
    names = {f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").is_file()}
    names |= {path.name for path in package.glob("*.py")} - {"__main__.py"}
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_decisions_are_numbered_without_gaps(root):
    names = sorted(path.name for path in (root / "docs/adr").glob("*.md"))
    assert [name[:4] for name in names] == [f"{number:04d}" for number in range(1, len(names) + 1)]
