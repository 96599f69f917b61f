"""`unspool diagnose`: measure why text degenerates."""

from __future__ import annotations

from unspool.cli.diagnose import model, texts
from unspool.cli.parser import CommandGroup

COMMAND = CommandGroup(
    "Find out why a model's text degenerates: loops, calibration, attention, its head.",
    {
        "attention": model.attention,
        "beams": texts.beams,
        "bottleneck": model.bottleneck,
        "calibration": texts.calibration,
        "exposure": texts.measure_exposure,
        "heads": model.heads,
        "loops": texts.loops,
        "picture": texts.picture,
        "senses": model.show_senses,
        "thresholds": texts.match_thresholds,
        "trap": texts.trap,
    },
)
