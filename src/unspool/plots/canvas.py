"""Parts that all figures share: reproducible files, colours, labels and checks of the arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from unspool.arguments import shown
from unspool.lazy import import_optional

INK, SOFT, BLUE, ORANGE, RED, GREEN = "#222222", "#8a8a8a", "#2471a3", "#e67e22", "#c0392b", "#1e8449"

SUFFIXES = (".svg", ".png", ".pdf")


@contextmanager
def canvas(path: str | Path, width: float, height: float) -> Iterator[Any]:
    """Yield a matplotlib Figure of this size in inches; save it to `path` at the end of the block."""
    path = figure_path(path)
    Figure = import_optional("matplotlib.figure", "A figure", "matplotlib", "figures").Figure
    import matplotlib as mpl

    # Text as outlines looks the same everywhere; a fixed salt and no date make the file reproducible.
    style = {"svg.fonttype": "path", "svg.hashsalt": "unspool", "font.size": 9, "font.family": "DejaVu Sans"}
    style |= {"axes.spines.right": False, "axes.spines.top": False, "axes.labelcolor": INK}
    metadata = {".svg": {"Date": None, "Creator": "unspool"}, ".pdf": {"CreationDate": None}}
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(path, facecolor="white", metadata=metadata.get(path.suffix.lower()), dpi=150)


def check_type(result: Any, name: str) -> None:
    """Raise a TypeError unless `result` is an instance of the class with this name.

    The name replaces the class so that plots do not import the packages whose results they draw.
    """
    if name not in {cls.__name__ for cls in type(result).__mro__}:
        raise TypeError(f"cannot draw {shown(result)}: expected a {name}")


def figure_path(path: str | Path) -> Path:
    """Check the path of a figure; call it before long computations."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"{shown(path)} is not a path: name the file that the figure is written to")
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: unknown figure format: use {', '.join(SUFFIXES)}")
    return path


def label(text: str) -> str:
    """Make a token drawable: show spaces and line breaks, and replace characters that the font lacks by □."""
    visible = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    # The font has Latin, Greek and Cyrillic letters, the common punctuation, and the marks of contexts.
    drawable = (
        c if c.isprintable() and (c < "\u0530" or "\u2010" <= c <= "\u2027" or c in "⟨⟩→") else "□"
        for c in text
    )
    return "".join(visible.get(c, d) for c, d in zip(text, drawable, strict=True))
