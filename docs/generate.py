"""Write docs/techniques.md from the docstrings of the techniques: `python docs/generate.py [--check]`.

Only the standard library, and nothing is imported from the package: docstrings are read from the source.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Folder → title, in the order of the page. A module that cites no paper counts in the folders of DECODE only.
DECODE = {
    "decode/transforms": "Transforms: reshape what is drawn from",
    "decode/picks": "Picks: draw the token",
    "decode/search": "Searches: from prompts to finished texts",
    "decode/combine": "Combinations: models made of models",
}
ROOMS = {
    **DECODE,
    "basis": "The basis-aware test",
    "nn": "Building blocks",
    "heads": "Heads: hidden vectors to log-probabilities",
    "models": "Models",
    "objectives": "Objectives",
    "train": "Training",
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


def read(path: Path, root: Path) -> Technique | None:
    """The technique of a module; None where its docstring shows no equation, or nothing to cite it by."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstring = ast.get_docstring(tree) or ""
    first, *rest = docstring.split("\n\n")
    equation = next((part for part in rest if part.startswith("    ")), None)
    room = path.parent.relative_to(root / "src/unspool").as_posix()
    cited = [part for part in rest if CITATION.search(part)]
    if equation is None or (not cited and room not in DECODE):
        return None
    names = tuple(
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    )
    return Technique(path, names, " ".join(first.split()), textwrap.dedent(equation), "\n\n".join(cited))


def papers(root: Path) -> dict[str, tuple[str, str]]:
    """Key → title and address, from papers.bib."""
    found = {}
    for entry in re.split(r"^@", (root / "papers.bib").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        key = entry[entry.index("{") + 1 : entry.index(",")].strip()
        fields = dict(re.findall(r"^\s*(\w+)\s*=\s*\{(.*?)\},?\s*$", entry, re.MULTILINE | re.DOTALL))
        title = re.sub(r"[{}]|\s*\n\s*", "", fields.get("title", key))
        found[key] = (title, fields.get("url", ""))
    return found


def show(technique: Technique, root: Path, known: dict[str, tuple[str, str]]) -> str:
    """The technique's part of the page."""
    where = technique.path.relative_to(root).as_posix()
    title = technique.path.stem.replace("_", " ")
    names = ", ".join(f"`{name}`" for name in technique.names)
    lines = [f"### {title}\n", f"{technique.sentence}\n", f"```text\n{technique.equation}\n```\n"]
    if technique.source:
        text = " ".join(CITATION.sub("", technique.source).split()).rstrip("; ")
        keys = [key for found in CITATION.findall(technique.source) for key in re.split(r",\s+", found)]
        lines.append(f"{text}\n" if text else "")
        lines += [f"- {_link(*known[key])}" for key in dict.fromkeys(keys)]
        lines.append("")
    return "\n".join([*lines, f"[{where}](../{where}) · {names}\n"])


def _link(title: str, address: str) -> str:
    return f"[{title}]({address})" if address else title


def page(root: Path = ROOT) -> str:
    """The whole of docs/techniques.md."""
    known, parts = papers(root), [HEADER]
    for room, title in ROOMS.items():
        modules = sorted((root / "src/unspool" / room).rglob("*.py"))
        techniques = [found for path in modules if (found := read(path, root)) is not None]
        if techniques:
            parts += [f"## {title}\n", *(show(each, root, known) for each in techniques)]
    return "\n".join(parts)


def main(argv: list[str]) -> int:
    """Write the page, or with --check only say whether it would change."""
    target = ROOT / "docs/techniques.md"
    new = page()
    if argv == ["--check"]:
        same = target.is_file() and target.read_text(encoding="utf-8") == new
        print(f"{target.name} is up to date" if same else f"{target.name} is not up to date: run `make docs`")
        return 0 if same else 1
    target.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
