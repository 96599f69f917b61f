"""The hook of mkdocs.yml: pages for the API, and a place in the site for everything that documents link to.

A document of docs/ links to files of the repository, as it is read on GitHub. In the site, README.md,
CONTRIBUTING.md and CHANGELOG.md are pages under project/, and any other file is a copy in source/ that a
browser shows as text. Everything is there offline.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
ROOMS = {
    "unspool": "what `import unspool as us` gives",
    "unspool.evaluate": "measures of what was generated",
    "unspool.diagnose": "why text degenerates",
}
SHIM = "worker_in_frame.js"
FOREIGN_SHIM = re.compile(r"https://unpkg\.com/iframe-worker/shim")
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^(```.*?^```|(?:^    .*\n)+)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Documents that mkdocs.yml does not place stand under More, and the reference at the end."""
    config.nav += [{"More": more}] if (more := unplaced(config.nav, ROOT / "docs")) else []
    config.nav.append({"Reference": [f"api/{room}.md" for room in ROOMS]})
    return config


def unplaced(nav: Any, folder: Path) -> list[str]:
    """The documents that a navigation does not name."""
    return sorted(path.name for path in folder.glob("*.md") if f"'{path.name}'" not in str(nav))


def on_files(files: Any, config: Any) -> Any:
    """Add what is made: pages of the project, the reference, and copies of all files that are linked to."""
    from mkdocs.structure.files import File

    pages = {f"project/{name}": (ROOT / name).read_text(encoding="utf-8") for name in PROJECT}
    pages |= {f"api/{room}.md": reference(room, ROOT / "src") for room in ROOMS}
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    for path in sorted({path for page in files.documentation_pages() for path in outside(page)}):
        files.append(File.generated(config, copied(path), content=shown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **others: Any) -> str:
    """Lead links to where their targets are in the site."""
    del others
    return relinked(markdown, page.file.src_uri)


def on_post_page(output: str, page: Any, **others: Any) -> str:
    """What the theme would fetch from elsewhere, so that search works from the disk, is here."""
    del others
    return at_home(output, page.file.dest_uri)


def on_post_template(output: str, template_name: str, **others: Any) -> str:
    """The same for the page that says that there is none."""
    del others
    return at_home(output, template_name)


def at_home(html: str, place: str) -> str:
    """The page without its one foreign script: ours stands at the top of the site."""
    here = os.path.relpath(SHIM, PurePosixPath(place).parent)
    return FOREIGN_SHIM.sub(PurePosixPath(here).as_posix(), html)


def outside(page: Any) -> list[str]:
    """The files and folders that a page links to and that are no pages, by their path in the repository."""
    targets = [target for _, target in links(page.content_string, page.src_uri)]
    return [target for target in targets if target is not None and copied(target) == placed(target)]


def links(markdown: str, place: str) -> list[tuple[str, str | None]]:
    """Every relative link of a page, and its target in the repository where that is there."""
    found = []
    for part in FENCE.split(markdown):
        if not FENCE.fullmatch(part):
            found += [(link, resolved(link, place)) for _, link, _ in LINK.findall(part)]
    return found


def resolved(link: str, place: str) -> str | None:
    """A link of the page at this place of the site, as a path in the repository; None for any other."""
    name = link.partition("#")[0]
    if not name or re.match(r"[a-z]+:", link):
        return None
    folder = ROOT / original(place).parent
    path = Path(os.path.normpath(folder / name))
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) and path.exists() else None


def original(place: str) -> PurePosixPath:
    """Where a page of the site is in the repository."""
    path = PurePosixPath(place)
    return PurePosixPath(path.name) if path.parts[0] == "project" else PurePosixPath("docs") / path


def placed(path: str) -> str:
    """Where a file of the repository is in the site."""
    if path in PROJECT:
        return f"project/{path}"
    if path.startswith("docs/") and (path.endswith((".md", ".svg", ".png"))):
        return path.removeprefix("docs/")
    return copied(path)


def copied(path: str) -> str:
    """The name of a copy that a browser shows as text."""
    return f"source/{path}.txt"


def shown(path: str) -> str:
    """A file's text; of a folder, the names in it."""
    found = ROOT / path
    if found.is_dir():
        return "\n".join(sorted(it.name for it in found.iterdir() if it.name != "__pycache__")) + "\n"
    return found.read_text(encoding="utf-8")


def relinked(markdown: str, place: str) -> str:
    """The page with links that lead somewhere in the site; what stands in code stays as it is."""

    def led(match: re.Match[str]) -> str:
        target = resolved(match[2], place)
        if target is None:
            return match[0]
        anchor = match[2].partition("#")[1:]
        to = os.path.relpath(placed(target), PurePosixPath(place).parent)
        return f"{match[1]}{PurePosixPath(to).as_posix()}{''.join(anchor)}{match[3]}"

    parts = FENCE.split(markdown)
    return "".join(part if FENCE.fullmatch(part) else LINK.sub(led, part) for part in parts)


def reference(room: str, source: Path) -> str:
    """The page of one package: every name that it exports, where it is at home."""
    homes = exported((source / room.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    lines = [f"# {room}", "", f"{ROOMS[room].capitalize()}.", ""]
    for name, home in sorted(homes.items(), key=lambda it: (it[0][:1].islower(), it[0])):
        lines += [f"::: {home}.{name}", ""]
    return "\n".join(lines)


def exported(source: str) -> dict[str, str]:
    """Name → module, of what a package imports for type checkers."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                assert isinstance(each, ast.ImportFrom)
                found |= {alias.name: str(each.module) for alias in each.names}
    return found
