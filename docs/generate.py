"""Write docs/techniques.md and the recipe reference in docs/training.md.

    python docs/generate.py [--check]

It needs only the standard library and does not import the package: docstrings are read from the source.
A technique is a module, class or public function whose docstring has an equation (an indented block) and
cites a paper (`papers.bib: key`). Decoders, and modules of decoders, need no paper.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from reference import training_page

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/unspool"

# Package or module → heading, in the order of the page. A file belongs to the longest prefix that matches.
SECTIONS = {
    "decode/transforms": "Transforms: penalties, temperature, truncation",
    "decode/picks": "Picks: draw the token",
    "decode/search": "Search",
    "decode/ranking": "Ranking: length penalties and stopping rules",
    "decode/combine": "Models made of models",
    "decode": "Other parts of decoding",
    "basis": "The basis-aware test",
    "data": "Data and known languages",
    "tokenization": "Tokenization",
    "nn": "Layers",
    "heads": "Output heads",
    "models": "Models",
    "objectives": "Objectives",
    "training": "Training",
    "diagnose": "Diagnoses",
    "plots": "Figures",
    "evaluate": "Measures",
}
CITATION = re.compile(r"papers\.bib:\s+(\w[\w:-]*(?:,\s+[a-z]+\d{4}\w*)*)")
HEADER = """# Techniques

Every technique with its equation, its paper and the file that implements it. `make docs` writes this page
from the docstrings, which also explain the symbols and the differences from the papers.
"""


@dataclass(frozen=True)
class Technique:
    """One docstring with an equation."""

    path: Path
    name: str
    """Class or function; "" if the docstring is the module's."""
    section: str
    title: str
    summary: str
    """The paragraphs before the equation."""
    equation: str
    source: str
    """The paragraphs that cite papers."""
    keys: tuple[str, ...]
    """The papers' keys in papers.bib."""

    @property
    def anchor(self) -> str:
        """The heading's anchor on GitHub and in the site."""
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")


def read_techniques(root: Path = ROOT) -> list[Technique]:
    """All techniques in the order of the page, with unique titles."""
    files, decoders = sorted((root / PACKAGE).rglob("*.py")), decoder_names(root)
    found = [it for path in files for it in read_module(path, root, decoders)]
    order = list(SECTIONS.values())
    found.sort(key=lambda it: order.index(it.section))
    anchors = Counter(it.anchor for it in found)
    return [
        it if anchors[it.anchor] == 1 else replace(it, title=f"{it.title} ({_place(it, root)})")
        for it in found
    ]


def read_module(path: Path, root: Path, decoders: set[str]) -> list[Technique]:
    """The techniques of one file."""
    place = path.relative_to(root / PACKAGE).with_suffix("").as_posix()
    prefixes = [prefix for prefix in SECTIONS if f"{place}/".startswith(f"{prefix}/")]
    if not prefixes:
        return []
    section = SECTIONS[max(prefixes, key=len)]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    uncited = decoders if place.startswith("decode/") else set()
    if any(isinstance(it, ast.ClassDef) and it.name in uncited for it in tree.body):
        uncited = uncited | {""}  # the module's docstring
    nodes = [tree, *(it for it in tree.body if isinstance(it, ast.ClassDef | ast.FunctionDef))]
    found = []
    for node in nodes:
        name = "" if isinstance(node, ast.Module) else node.name
        docstring = read_docstring(node)
        keys = [key for match in CITATION.findall(docstring) for key in re.split(r",\s+", match)]
        paragraphs = docstring.split("\n\n")
        places = [number for number, it in enumerate(paragraphs) if it.startswith("    ")]
        if not places or name.startswith("_") or not (keys or name in uncited):
            continue
        first = places[0]
        cited = [it for it in paragraphs if CITATION.search(it) and it != paragraphs[first]]
        found.append(
            Technique(
                path,
                name,
                section,
                title=name or path.stem.replace("_", " "),
                summary="\n\n".join(" ".join(it.split()) for it in paragraphs[:first]),
                equation=_equation(paragraphs[first]),
                source=" ".join(_without_keys("\n\n".join(cited)).split()).rstrip("; "),
                keys=tuple(dict.fromkeys(keys)),
            )
        )
    return found


def read_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    """The docstring without the indentation of its code; inspect.cleandoc would also dedent equations."""
    raw = ast.get_docstring(node, clean=False)
    if raw is None:
        return ""
    margin = " " * node.body[0].col_offset
    return "\n".join(line.removeprefix(margin).rstrip() for line in raw.splitlines()).strip()


def _equation(paragraph: str) -> str:
    lines = _without_keys(textwrap.dedent(paragraph)).splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _without_keys(text: str) -> str:
    """The text without citation keys, which the page replaces by links, and without brackets around them."""
    text = re.sub(rf"\s*\(\s*{CITATION.pattern}\s*\)", "", text)
    return re.sub(rf"[;,]?\s*{CITATION.pattern}", "", text)


def decoder_names(root: Path) -> set[str]:
    """Names that the package `decode` and its packages import from their modules."""
    inits = (root / PACKAGE / "decode").glob("**/__init__.py")
    nodes = [node for init in inits for node in ast.walk(ast.parse(init.read_text(encoding="utf-8")))]
    return {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}


def _place(technique: Technique, root: Path) -> str:
    """`package.module` of a technique."""
    place = technique.path.relative_to(root / PACKAGE).with_suffix("")
    return ".".join(place.parts)


def read_papers(root: Path) -> dict[str, tuple[str, str]]:
    """Key → title and address, from papers.bib."""
    found = {}
    for entry in re.split(r"^@", (root / "papers.bib").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        key = entry[entry.index("{") + 1 : entry.index(",")].strip()
        fields = dict(re.findall(r"^\s*(\w+)\s*=\s*\{(.*?)\},?\s*$", entry, re.MULTILINE | re.DOTALL))
        title = " ".join(re.sub(r"[{}]", "", fields.get("title", key)).split())
        found[key] = (title, fields.get("url", ""))
    return found


def show_technique(technique: Technique, root: Path, papers: dict[str, tuple[str, str]]) -> str:
    """The technique's part of the page."""
    file = technique.path.relative_to(root).as_posix()
    if unknown := [key for key in technique.keys if key not in papers]:
        raise ValueError(f"{file} cites {', '.join(unknown)}: add it to papers.bib")
    summary = technique.summary.replace("][", "]\\[")  # not a link
    lines = [f"### {technique.title}\n", f"{summary}\n", f"```text\n{technique.equation}\n```\n"]
    lines += [f"{technique.source}\n"] if technique.source else []
    for title, url in (papers[key] for key in technique.keys):
        lines.append(f"- [{title}]({url})" if url else f"- {title}")
    code = f": `{technique.name}`" if technique.name else ""
    lines += [""] if technique.keys else []
    return "\n".join([*lines, f"[{file}](../{file}){code}\n"])


def techniques_page(root: Path = ROOT) -> str:
    """The text of docs/techniques.md: an index, then every technique."""
    papers, techniques = read_papers(root), read_techniques(root)
    by_section = {title: [it for it in techniques if it.section == title] for title in SECTIONS.values()}
    by_section = {title: inside for title, inside in by_section.items() if inside}
    rows = [
        f"| **{title}** | {' · '.join(f'[{it.title}](#{it.anchor})' for it in inside)} |"
        for title, inside in by_section.items()
    ]
    parts = [HEADER, "\n".join(["| | |", "|---|---|", *rows, ""])]
    for title, inside in by_section.items():
        parts += [f"## {title}\n", *(show_technique(it, root, papers) for it in inside)]
    return "\n".join(parts)


def main(argv: list[str]) -> int:
    """Write the pages; with --check, only report whether they would change."""
    status = 0
    pages = {"docs/techniques.md": techniques_page(), "docs/training.md": training_page(ROOT)}
    for name, text in pages.items():
        target = ROOT / name
        if argv == ["--check"]:
            is_current = target.is_file() and target.read_text(encoding="utf-8") == text
            print(f"{name} is up to date" if is_current else f"{name} is out of date: run `make docs`")
            status |= not is_current
        else:
            target.write_text(text, encoding="utf-8")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
