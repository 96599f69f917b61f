"""`unspool diagnose`: measure why text degenerates."""

from __future__ import annotations

from unspool.cli.diagnose import attention, bottleneck, calibration, degeneration, samplers, senses
from unspool.cli.parser import CommandGroup

COMMAND = CommandGroup(
    "Measure why text degenerates: the model, its head and its decoders.",
    {
        "attention": attention.ATTENTION,
        "beams": degeneration.BEAMS,
        "bottleneck": bottleneck.COMMAND,
        "calibration": calibration.CALIBRATION,
        "exposure": calibration.EXPOSURE,
        "heads": attention.HEADS,
        "loops": degeneration.LOOPS,
        "picture": samplers.PICTURE,
        "senses": senses.COMMAND,
        "thresholds": samplers.THRESHOLDS,
        "trap": degeneration.TRAP,
    },
)
