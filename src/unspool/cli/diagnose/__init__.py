"""`unspool diagnose`: measure why text degenerates."""

from __future__ import annotations

from unspool.cli.diagnose import attention, bottleneck, calibration, degeneration, samplers, senses
from unspool.cli.parser import CommandGroup

COMMAND = CommandGroup(
    "Find out why a model's text degenerates: loops, calibration, attention, its head.",
    {
        "attention": attention.attention,
        "beams": degeneration.beams,
        "bottleneck": bottleneck.bottleneck,
        "calibration": calibration.calibration,
        "exposure": calibration.measure_exposure,
        "heads": attention.heads,
        "loops": degeneration.loops,
        "picture": samplers.picture,
        "senses": senses.show_senses,
        "thresholds": samplers.match_thresholds,
        "trap": degeneration.trap,
    },
)
