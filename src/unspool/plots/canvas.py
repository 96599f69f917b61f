"""What all pictures share: matplotlib only where it is asked for, and files that are the same every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from unspool.decode.arguments import shown

INK, SOFT, BLUE, ORANGE, RED, GREEN = "#222222", "#8a8a8a", "#2471a3", "#e67e22", "#c0392b", "#1e8449"

SUFFIXES = (".svg", ".png", ".pdf")


@contextmanager
def canvas(path: str | Path, width: float, height: float) -> Iterator[Any]:
    """A matplotlib Figure of so many inches, saved to `path` at the end."""
    path = named(path)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Pictures need matplotlib: pip install 'unspool[figures]'") from error
    # Text as outlines looks the same everywhere; the salt and no date make the file reproducible.
    style = {"svg.fonttype": "path", "svg.hashsalt": "unspool", "font.size": 9, "font.family": "DejaVu Sans"}
    about = {".svg": {"Date": None, "Creator": "unspool"}, ".pdf": {"CreationDate": None}}
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(path, facecolor="white", metadata=about.get(path.suffix.lower()), dpi=150)


def drawn(found: Any, kind: type) -> None:
    """Refuse to draw what is nothing that was found."""
    if not isinstance(found, kind):
        raise TypeError(f"{shown(found)} cannot be drawn here, but a {kind.__name__} can.")


def named(path: str | Path) -> Path:
    """The path of a picture; ask before the work where a wrong name should not be found out after it."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"{shown(path)} is no path; name the file that the picture is written to.")
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: a picture is written as {', '.join(SUFFIXES)}; name the file so.")
    return path


def label(text: str) -> str:
    """A token as it can be drawn: spaces and line ends are shown, and what the font lacks is a box."""
    seen = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    # The font has Latin, Greek and Cyrillic letters, the common punctuation, and the marks of contexts.
    drawable = (
        c if c.isprintable() and (c < "\u0530" or "\u2010" <= c <= "\u2027" or c in "⟨⟩→") else "□"
        for c in text
    )
    return "".join(seen.get(c, d) for c, d in zip(text, drawable, strict=True))
