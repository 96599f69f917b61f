"""How far is it from the README to the line that computes an equation?

    python docs/stranger.py --count 10 --seed 13

Picks techniques at random among all that the README leads to, follows the links of the documents as a reader
would, and prints every hop: the README's link, the link of the technique's entry, and the line where its
function begins. Then the files of every walk, in order. Only the standard library; nothing is imported from
the package.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
FIRST = re.compile(r"\]\(docs/techniques\.md#([\w-]+)\)")
ENTRY = re.compile(r"^### (.*?)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"`([\w.]+)`(?: in \[[^\]]*\]\(\.\./([^)]*)\))?")
WALKED = re.compile(r"\]\(\.\./(src/unspool/[^)#]*)\)")


@dataclass(frozen=True)
class Trail:
    """The two hops of one technique."""

    anchor: str
    """Of its entry, which the README leads to."""
    places: tuple[str, ...]
    """Which the entry leads to: path:line function."""

    def __str__(self) -> str:
        return f"README.md → docs/techniques.md#{self.anchor} → {', '.join(self.places)}"


def trails(root: Path = ROOT) -> list[Trail]:
    """Of every technique that the README leads to, each once."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    page = (root / "docs/techniques.md").read_text(encoding="utf-8")
    entries = {title.replace(" ", "-"): body for title, body in ENTRY.findall(page)}
    return [Trail(anchor, _places(entries[anchor], root)) for anchor in dict.fromkeys(FIRST.findall(readme))]


def _places(entry: str, root: Path) -> tuple[str, ...]:
    own, _, said = entry.strip().splitlines()[-1].partition("): ")
    file = own.partition("](../")[2]
    return tuple(
        f"{path or file}:{_line(root / (path or file), name)} {name}" for name, path in PLACE.findall(said)
    )


def _line(path: Path, name: str) -> int:
    """Where a function, or Class.method, begins."""
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for part in name.split("."):
        (found,) = (
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part and not _overload(node)
        )
        body = found.body
    return found.lineno


def _overload(node: ast.ClassDef | ast.FunctionDef) -> bool:
    return "overload" in map(ast.unparse, node.decorator_list)


def walks(root: Path = ROOT) -> dict[str, list[str]]:
    """Heading → the files that this walk of docs/walk.md passes, in order; asides are left out."""
    page = (root / "docs/walk.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)[1:]
    return {
        heading: WALKED.findall(re.split(r"^### Aside", text, flags=re.MULTILINE)[0])
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


def main(argv: list[str]) -> int:
    """Print both halves of the test."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=13)
    args = parser.parse_args(argv)
    found = trails()
    for trail in Random(args.seed).sample(found, args.count):
        print(trail)
    for heading, files in walks().items():
        twice = len(files) - len(set(files))
        print(f"\n{heading}: {len(files)} files, {twice} of them twice")
        print("\n".join(f"  {path}" for path in files))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
