"""Prepare the pages of the documentation site: `python docs/site.py`, then `zensical build`.

Documents link to files of the repository, as on GitHub. This script copies docs/ to build/site-docs, with
README.md, CONTRIBUTING.md and CHANGELOG.md under project/, API pages under api/, and a text copy of every
other linked file under source/, and adapts links.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath

from unspool.lazy import declared_imports

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "build/site-docs"
PROJECT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PACKAGES = {
    "unspool": "Names of `import unspool as us`",
    "unspool.decode": "All decoders, transforms and picks",
    "unspool.evaluate": "Measures of texts, models and decoders",
    "unspool.diagnose": "Why text degenerates",
}
IMAGES = (".svg", ".png")
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
CODE = re.compile(r"^(```.*?^```|(?:^    .*\n)+)", re.MULTILINE | re.DOTALL)


def resolve(link: str, page: str) -> str | None:
    """Path in the repository of a relative link of a page; None for other links and missing files."""
    name = link.partition("#")[0]
    if not name or re.match(r"[a-z]+:", link):
        return None
    path = Path(os.path.normpath(ROOT / original(page).parent / name))
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) and path.exists() else None


def original(page: str) -> PurePosixPath:
    """Path in the repository of a page of the site."""
    path = PurePosixPath(page)
    return PurePosixPath(path.name) if path.parts[0] == "project" else PurePosixPath("docs") / path


def place(path: str) -> str:
    """Path in the site of a file of the repository."""
    if path in PROJECT:
        return f"project/{path}"
    if path.startswith("docs/") and path.endswith((".md", *IMAGES)):
        return path.removeprefix("docs/")
    return f"source/{path}.txt"


def prose(markdown: str) -> Iterator[tuple[bool, str]]:
    """(is code, text) of the parts of a page."""
    for part in CODE.split(markdown):
        yield bool(CODE.fullmatch(part)), part


def relink(markdown: str, page: str) -> str:
    """Replace links to files of the repository by links within the site; code stays as it is."""

    def replace(match: re.Match[str]) -> str:
        target = resolve(match[2], page)
        if target is None:
            return match[0]
        anchor = "".join(match[2].partition("#")[1:])
        to = PurePosixPath(os.path.relpath(place(target), PurePosixPath(page).parent)).as_posix()
        return f"{match[1]}{to}{anchor}{match[3]}"

    return "".join(part if code else LINK.sub(replace, part) for code, part in prose(markdown))


def linked_files(markdown: str, page: str) -> set[str]:
    """Files and folders of the repository that a page links to and that are not pages or images."""
    links = [link for code, part in prose(markdown) if not code for _, link, _ in LINK.findall(part)]
    targets = {target for link in links if (target := resolve(link, page)) is not None}
    return {target for target in targets if place(target).startswith("source/")}


def as_text(path: str) -> str:
    """The text of a file, or the names of the files of a folder."""
    source = ROOT / path
    if source.is_dir():
        return "\n".join(sorted(it.name for it in source.iterdir() if it.name != "__pycache__")) + "\n"
    return source.read_text(encoding="utf-8")


def api_page(package: str) -> str:
    """A page that documents every exported name of a package, without its subpackages."""
    names = {
        name: module
        for name, module in declared_imports(import_module(package)).items()
        if module != "unspool"
    }
    lines = [f"# {package}", "", f"{PACKAGES[package]}.", ""]
    for name, module in sorted(names.items(), key=lambda entry: (entry[0][:1].islower(), entry[0])):
        lines += [f"::: {module}.{name}", ""]
    return "\n".join(lines)


def main() -> None:
    """Write all pages to build/site-docs."""
    shutil.rmtree(TARGET, ignore_errors=True)
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix(): path for path in docs.rglob("*.md")}
    pages |= {f"project/{name}": ROOT / name for name in PROJECT}
    texts = {page: path.read_text(encoding="utf-8") for page, path in pages.items()}
    copies = set().union(*(linked_files(text, page) for page, text in texts.items()))
    written = {page: relink(text, page) for page, text in texts.items()}
    written |= {f"api/{package}.md": api_page(package) for package in PACKAGES}
    written |= {place(path): as_text(path) for path in copies}
    for page, text in written.items():
        target = TARGET / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for file in (path for path in docs.rglob("*") if path.suffix in IMAGES):
        target = TARGET / file.relative_to(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


if __name__ == "__main__":
    main()
