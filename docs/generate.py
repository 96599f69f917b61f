"""Write docs/techniques.md, and the reference in docs/training.md: `python docs/generate.py [--check]`.

Only the standard library, and nothing is imported from the package: docstrings are read from the source. The
techniques come from the docstrings of their modules; the reference is made in reference.py.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from reference import training_page

ROOT = Path(__file__).resolve().parents[1]

# Folder → title, in the order of the page; a module stands in the innermost room that holds it.
ROOMS = {
    "decode/transforms": "Transforms: reshape what is drawn from",
    "decode/picks": "Picks: draw the token",
    "decode/shortlist": "Shortlists: draw without looking at every token",
    "decode/search": "Searches: from prompts to finished texts",
    "decode/ranking": "Ranking: how searches score hypotheses and when they stop",
    "decode/combine": "Combinations: models made of models",
    "decode": "Around the search",
    "basis": "The basis-aware test",
    "data/languages": "Languages whose truth is known, and tiny tasks",
    "data": "Data",
    "nn": "Building blocks",
    "heads": "Heads: hidden vectors to log-probabilities",
    "models": "Models",
    "objectives": "Objectives",
    "training": "Training",
    "diagnose": "Diagnoses",
    "evaluate": "Measures",
}
CITATION = re.compile(r"papers\.bib:\s+(\w[\w:-]*(?:,\s+[a-z]+\d{4}\w*)*)")

HEADER = """# Techniques

Every technique with its equation and its paper, one file each. This page is written by `make docs` from the
docstrings of the source, where symbols and departures from the papers are explained.
"""


@dataclass(frozen=True)
class Technique:
    """One module's docstring, taken apart."""

    path: Path
    names: tuple[str, ...]
    sentence: str
    equation: str
    source: str
    """The paragraphs that cite papers."""
    keys: tuple[str, ...]
    """Of those papers, in papers.bib."""


def read(path: Path, root: Path) -> Technique | None:
    """The technique of a module; None where its docstring shows no equation.

    One without a paper counts if one of the rooms of `decode` exports it.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstring = ast.get_docstring(tree) or ""
    first, *rest = docstring.split("\n\n")
    equation = next((part for part in rest if part.startswith("    ")), None)
    cited = [part for part in rest if CITATION.search(part) and part != equation]
    keys = [key for found in CITATION.findall(docstring) for key in re.split(r",\s+", found)]
    public = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    ]
    names = tuple(node.name for node in public)
    is_decoder = _room(path, root).startswith("decode/") and _exports(path.parent).intersection(names)
    if equation is None or not (keys or is_decoder):
        return None
    return Technique(
        path,
        names,
        sentence=" ".join(first.split()),
        equation="\n".join(line.rstrip() for line in _uncited(textwrap.dedent(equation)).splitlines()),
        source=" ".join(_uncited("\n\n".join(cited)).split()).rstrip("; "),
        keys=tuple(dict.fromkeys(keys)),
    )


def _uncited(text: str) -> str:
    """The text without the keys, which the page replaces by titles, and without the brackets around them."""
    text = re.sub(rf"\s*\(\s*{CITATION.pattern}\s*\)", "", text)
    return re.sub(rf"[;,]?\s*{CITATION.pattern}", "", text)


def _exports(folder: Path) -> set[str]:
    init = folder / "__init__.py"
    for node in ast.parse(init.read_text(encoding="utf-8")).body if init.is_file() else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def _room(path: Path, root: Path) -> str:
    folder = path.parent.relative_to(root / "src/unspool").as_posix()
    return max((room for room in ROOMS if f"{folder}/".startswith(f"{room}/")), key=len, default="")


def papers(root: Path) -> dict[str, tuple[str, str]]:
    """Key → title and address, from papers.bib."""
    found = {}
    for entry in re.split(r"^@", (root / "papers.bib").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        key = entry[entry.index("{") + 1 : entry.index(",")].strip()
        fields = dict(re.findall(r"^\s*(\w+)\s*=\s*\{(.*?)\},?\s*$", entry, re.MULTILINE | re.DOTALL))
        title = " ".join(re.sub(r"[{}]", "", fields.get("title", key)).split())
        found[key] = (title, fields.get("url", ""))
    return found


def show(technique: Technique, root: Path, known: dict[str, tuple[str, str]]) -> str:
    """The technique's part of the page."""
    where = technique.path.relative_to(root).as_posix()
    title = technique.path.stem.replace("_", " ")
    names = ", ".join(f"`{name}`" for name in technique.names)
    lines = [f"### {title}\n", f"{technique.sentence}\n", f"```text\n{technique.equation}\n```\n"]
    if technique.source:
        lines.append(f"{technique.source}\n")
    if absent := [key for key in technique.keys if key not in known]:
        raise ValueError(f"{where} cites {', '.join(absent)}: papers.bib has no such entry")
    if technique.keys:
        lines += [*(f"- {_link(*known[key])}" for key in technique.keys), ""]
    return "\n".join([*lines, f"[{where}](../{where}) · {names}\n"])


def _link(title: str, address: str) -> str:
    return f"[{title}]({address})" if address else title


def page(root: Path = ROOT) -> str:
    """The whole of docs/techniques.md."""
    known, parts = papers(root), [HEADER]
    modules = sorted(path for path in (root / "src/unspool").rglob("*.py") if path.name != "__init__.py")
    found = [technique for path in modules if (technique := read(path, root)) is not None]
    for room, title in ROOMS.items():
        inside = [show(each, root, known) for each in found if _room(each.path, root) == room]
        parts += [f"## {title}\n", *inside] if inside else []
    return "\n".join(parts)


def main(argv: list[str]) -> int:
    """Write the pages, or with --check only say whether they would change."""
    status = 0
    for name, new in (("techniques.md", page()), ("training.md", training_page(ROOT))):
        target = ROOT / "docs" / name
        if argv == ["--check"]:
            same = target.is_file() and target.read_text(encoding="utf-8") == new
            print(f"{name} is up to date" if same else f"{name} is not up to date: run `make docs`")
            status |= not same
        else:
            target.write_text(new, encoding="utf-8")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
