"""Every paper that the code cites is in papers.bib, and papers.bib can be read."""

import re

import pytest

ENTRY = re.compile(r"@(\w+)\s*\{\s*([^,\s]+)\s*,")
CITED = re.compile(r"papers\.bib:\s+(\w[\w:-]*)((?:,\s+[a-z]+\d{4}\w*)*)")


def parse_bib(source):
    """{key: {field: value}}; raises ValueError for a broken, duplicate or incomplete entry."""
    entries, place = {}, 0
    while (start := source.find("@", place)) >= 0:
        match = ENTRY.match(source, start)
        if not match:
            raise ValueError(f"not an entry: {source[start : start + 40]!r}")
        place = _closing(source, source.index("{", start))
        body = source[match.end() : place]
        fields = {
            m[1].lower(): m[2] for m in re.finditer(r"(\w+)\s*=\s*[{\"](.*?)[}\"]\s*(?:,|$)", body, re.DOTALL)
        }
        key = match[2]
        if key in entries:
            raise ValueError(f"{key} is there twice")
        missing = {"title", "author", "year"} - fields.keys()
        if missing:
            raise ValueError(f"{key} has no {', '.join(sorted(missing))}")
        entries[key] = fields
    return entries


def _closing(source, opening):
    depth = 0
    for place in range(opening, len(source)):
        depth += {"{": 1, "}": -1}.get(source[place], 0)
        if depth == 0:
            return place
    raise ValueError(f"an entry is not closed: {source[opening : opening + 40]!r}")


def cited(source):
    return {
        key
        for first, more in CITED.findall(source)
        for key in (first, *(each.strip() for each in more.split(",") if each.strip()))
    }


@pytest.fixture(scope="module")
def bib(root):
    return parse_bib((root / "papers.bib").read_text(encoding="utf-8"))


def test_papers_can_be_read(bib):
    assert bib
    for key, fields in bib.items():
        assert re.fullmatch(r"\d{4}", fields["year"]), key


def test_every_citation_has_its_paper(root, bib):
    missing = {
        path.relative_to(root).as_posix(): absent
        for path in (*root.glob("src/**/*.py"), *root.glob("docs/**/*.md"), root / "README.md")
        if (absent := cited(path.read_text(encoding="utf-8")) - bib.keys())
    }
    assert missing == {}


GOOD = "@article{a2020b,\n  title = {A {Title}},\n  author = {Me},\n  year = {2020}\n}\n"


def test_a_bibliography_is_read():
    assert parse_bib(GOOD) == {"a2020b": {"title": "A {Title}", "author": "Me", "year": "2020"}}


@pytest.mark.parametrize(
    ("source", "match"),
    [
        (GOOD + GOOD, "twice"),
        (GOOD.rstrip().removesuffix("}"), "not closed"),
        (GOOD.replace("year", "month"), "has no year"),
        ("@article{}", "not an entry"),
    ],
)
def test_a_broken_bibliography_is_found(source, match):
    with pytest.raises(ValueError, match=match):
        parse_bib(source)


def test_citations_are_found():
    assert cited("Li 2016; papers.bib: li2016diversity.") == {"li2016diversity"}
    assert cited("papers.bib: a2020b, c2021d, eq. 3") == {"a2020b", "c2021d"}
    assert cited("papers.bib:\n    a2020b") == {"a2020b"}
    assert cited("see papers.bib") == set()
