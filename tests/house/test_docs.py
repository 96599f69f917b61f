"""The documents: links lead somewhere, the changelog has room for what is next, nothing is out of date."""

import re

import pytest

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def documents(root):
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def anchors(markdown):
    """The names that GitHub gives to a document's headings."""
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


@pytest.fixture(scope="module")
def generator(script):
    return script("docs/generate.py")


@pytest.fixture(scope="module")
def reference(script):
    return script("docs/reference.py")


def test_every_relative_link_leads_somewhere(root):
    found = {path.relative_to(root).as_posix(): broken_links(path) for path in documents(root)}
    assert {name: links for name, links in found.items() if links} == {}


def test_a_broken_link_is_noticed(tree):
    root = tree(
        {
            "a.md": "# One Thing: here\n[x](b.md) [y](c.md) [z](#one-thing-here) [w](#nothing) [u](https://x.y/z)\n"
            "```\n[in code](nowhere)\n```\n![p](img.png) [v](b.md#two) [t](b.md#three)",
            "b.md": "## Two",
        }
    )
    assert broken_links(root / "a.md") == ["c.md", "#nothing", "img.png", "b.md#three"]


def gone(text, files):
    """The Python files that a text names between backquotes and nobody has."""
    named = dict.fromkeys(re.findall(r"`([\w/]+\.py)`", text))
    return [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)]


def test_files_that_documents_name_are_there(root):
    # A lab log and a changelog tell of what was; CONTRIBUTING.md makes files of its own.
    past = {"CHANGELOG.md", "CONTRIBUTING.md", "lab-log.md"}
    rooms = ("benchmarks", "docs", "recipes", "src", "tests")
    files = [path.relative_to(root).as_posix() for room in rooms for path in (root / room).rglob("*.py")]
    pages = {path: path.read_text(encoding="utf-8") for path in documents(root) if path.name not in past}
    assert {path.name: lost for path, page in pages.items() if (lost := gone(page, files))} == {}


def test_a_file_that_is_gone_is_noticed():
    assert gone("`a.py`, `room/b.py`, `b.py` and `other/b.py`", ["src/room/b.py"]) == ["a.py", "other/b.py"]


def test_the_changelog_has_room_for_what_is_next(root):
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
def test_a_changelog_without_room_is_noticed(text):
    assert changelog_faults(text)


def test_the_techniques_are_up_to_date(root, generator):
    assert (root / "docs/techniques.md").read_text(encoding="utf-8") == generator.page(), "run `make docs`"
    assert (root / "README.md").read_text(encoding="utf-8") == generator.readme(), "run `make docs`"


def test_the_page_follows_the_docstrings(tree, generator):
    source = '"""Cut: keep few.\n\n    p > 0\n\nMe 2020, §1.\npapers.bib: me2020cut\n"""\n\nclass Cut:\n    def keeps(self): ...\n'
    root = tree(
        {
            "papers.bib": "@misc{me2020cut,\n  title = {On {Cutting}},\n  url = {https://x.y}\n}\n",
            "README.md": f"before\n{generator.BEGIN}\nold\n{generator.FINISH}\nafter\n",
            "src/unspool/decode/transforms/__init__.py": '__all__ = ["Cut"]',
            "src/unspool/decode/transforms/cut.py": source,
            "src/unspool/nn/compiled/fast_cut.py": source,
            "src/unspool/evaluate/cut.py": source.replace("class Cut", "class Deep"),
            "src/unspool/decode/transforms/plumbing.py": '"""No equation."""\n',
            "src/unspool/heads/uncited.py": '"""An equation.\n\n    a = b\n"""\n',
        }
    )
    page = generator.page(root)
    for part in (
        "### cut of transforms",
        "### cut of evaluate",
        "Cut: keep few.",
        "```text\np > 0\n```",
        "Me 2020, §1.",
        "- [On Cutting](https://x.y)",
        "[src/unspool/decode/transforms/cut.py](../src/unspool/decode/transforms/cut.py): `Cut.keeps`",
    ):
        assert part in page
    for part in ("plumbing", "uncited", "compiled"):
        assert part not in page
    rows = [
        "| **Transforms: reshape what is drawn from** | [`Cut`](docs/techniques.md#cut-of-transforms) |",
        "| **Measures** | [cut of evaluate](docs/techniques.md#cut-of-evaluate) |",
    ]
    table = "\n".join([generator.BEGIN, "| | |", "|---|---|", *rows, generator.FINISH])
    assert generator.readme(root) == f"before\n{table}\nafter\n"


def test_what_computes_an_equation_is_there(tree, generator, monkeypatch):
    module = '"""One.\n\n    a = b\n\npapers.bib: me2020\n"""\n\nclass One: ...\n'
    root = tree({"src/unspool/heads/one.py": module, "src/unspool/heads/two.py": "def other(): ...\n"})
    with pytest.raises(ValueError, match=r"one\.py: what computes its equation\?"):
        generator.techniques(root)
    monkeypatch.setitem(generator.COMPUTED, "One", "heads/two.py:other")
    ((one,),) = generator.techniques(root).values()
    assert one.computed == (("other", root / "src/unspool/heads/two.py"),)
    monkeypatch.setitem(generator.COMPUTED, "One", "One.nothing")
    with pytest.raises(ValueError, match=r"one\.py has no One\.nothing"):
        generator.techniques(root)


def test_what_is_said_to_compute_an_equation_is_said_of_a_technique(generator):
    modules = [it.path.read_text(encoding="utf-8") for room in generator.techniques().values() for it in room]
    named = set(re.findall(r"^(?:class|def) (\w+)", "\n".join(modules), re.MULTILINE))
    assert generator.COMPUTED.keys() - named == set()


def test_the_reference_of_recipes_is_up_to_date(root, reference):
    page = (root / "docs/training.md").read_text(encoding="utf-8")
    assert page == reference.training_page(root), "run `make docs`"


def test_the_reference_has_every_kind_and_every_key(root, reference):
    from dataclasses import fields

    from unspool.data import BATCHES, DATA
    from unspool.data.known_languages import LANGUAGES
    from unspool.data.known_languages.tasks import TASKS
    from unspool.objectives import OBJECTIVES
    from unspool.tokenization import TOKENIZER_CONFIGS as TEXTS
    from unspool.training import TrainSettings
    from unspool.training.hooks import HOOKS
    from unspool.training.optim import SCHEDULES

    said = reference.reference(root)
    for each in fields(TrainSettings):
        assert f"| `{each.name}` |" in said.partition("### `[data]`")[0]
    for kinds in (BATCHES, DATA, LANGUAGES, TASKS, OBJECTIVES, TEXTS, HOOKS, SCHEDULES):
        for kind, settings in kinds.items():
            assert f'**`kind = "{kind}"`**' in said
            for each in fields(settings):
                assert f"| `{each.name}` |" in said


ROOM = {
    "src/unspool/config.py": "LIMIT = 1000\nPaths = str | tuple[str, ...]\n",
    "src/unspool/kinds.py": "from unspool.one import One\nKINDS: dict[str, type] = {'one': One}\n",
    "src/unspool/one.py": (
        "from unspool.config import LIMIT, Paths\nfrom unspool.above import Above\n"
        'class One(Above):\n    """Does a\n    thing."""\n    limit: int = LIMIT\n    """Not | more."""\n'
        '    paths: Paths | None = None\n    """Files."""\n'
    ),
    "src/unspool/above.py": 'class Above:\n    way: Literal["a", "b"]\n    """A or b."""\n    _x: int = 3\n',
}


def test_the_reference_follows_the_dataclasses(tree, reference, monkeypatch):
    monkeypatch.setattr(reference, "SECTIONS", {"[one]": ("kinds", "KINDS")})
    said = reference.reference(tree(ROOM))
    for part in (
        "### `[one]`",
        "`one` have:",
        '| `way` | `"a"` or `"b"` | needed | A or b. |',
        '**`kind = "one"`** Does a thing.',
        "| `limit` | whole number | `1000` | Not \\| more. |",
        "| `paths` | text or list of texts | none | Files. |",
    ):
        assert part in said
    assert "_x" not in said


def test_a_key_without_a_docstring_is_noticed(tree, reference, monkeypatch):
    monkeypatch.setattr(reference, "SECTIONS", {"[one]": ("kinds", "KINDS")})
    bare = {**ROOM, "src/unspool/above.py": "class Above:\n    way: int\n"}
    with pytest.raises(ValueError, match=r"above\.Above\.way has no docstring"):
        reference.reference(tree(bare))


def test_decisions_are_numbered_without_gaps(root):
    names = sorted(path.name for path in (root / "docs/adr").glob("*.md"))
    assert [name[:4] for name in names] == [f"{number:04d}" for number in range(1, len(names) + 1)]
