"""The curves of a run as a picture: curves.svg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unspool.files.atomic import new_file
from unspool.training.curves import read_curves

PICTURE = "curves.svg"


def draw_curves(run: Path) -> Path | None:
    """Draw loss, validation and learning rate; None without matplotlib, or where there is no point yet."""
    points = read_curves(run)
    if not points:
        return None
    try:
        from matplotlib.figure import Figure  # a figure of its own, so that no window system is asked for
    except ImportError:
        return None
    figure: Any = Figure(figsize=(7, 4), layout="constrained")
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    likely = any("nll" in it or "valid" in it for it in points)
    shown = {"nll": "training", "valid": "validation"} if likely else {"loss": "what is minimised"}
    for name, label in shown.items():
        some = [(it["update"], it[name]) for it in points if name in it]
        if some:
            loss.plot(*zip(*some, strict=True), label=label, marker="." if name == "valid" else None)
    loss.set_ylabel("−log p of a token" if likely else "for each target")
    loss.legend(frameon=False)
    rate.plot(*zip(*[(it["update"], it["lr"]) for it in points if "lr" in it], strict=True), color="grey")
    rate.set_ylabel("learning rate")
    rate.set_xlabel("update")
    with new_file(run / PICTURE) as fresh:
        figure.savefig(fresh, format="svg", metadata={"Date": None})
    return run / PICTURE
