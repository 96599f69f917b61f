"""What is measured, fixed before the run: settings, primary quantities, and how they are decided."""

from __future__ import annotations

import hashlib
import math
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bat.cells import Cells
from bat.languages import BATCH, BRANCHING, CONTEXTS, SENTENCES, TOKENS, WIDTH, WORDS
from unspool.evaluate.mauve_curve import CLUSTERINGS, MIN_TEXTS, SCALING
from unspool.lab.inference import power
from unspool.lab.registry import digest

SAMPLERS = ("epsilon", "eta", "top-p", "BA-ε", "BA-η", "BA-p", "min-p")
"""The threshold samplers of Finlayson et al. 2024, their basis-aware forms, and min-p."""
MATTERS = 0.01
"""The smallest difference of MAUVE that matters: one point."""
ASSUMED = 0.0245, 0.016
"""For the power: the effect that Finlayson et al. report (GPT-2 XL), and the deviation of a difference between seeds at
300 texts in an earlier run of η against BA-η."""


@dataclass(frozen=True)
class Primary:
    """A registered difference between two samplers."""

    name: str
    statement: str
    better: str
    than: str
    shares: tuple[float, ...]
    """The difference is averaged over these shares of rejected human tokens, in each seed."""
    measure: str = "mauve_states"


PRIMARIES = (
    Primary(
        "BA-η against η",
        "Where a quarter of the human tokens is rejected (low entropy), texts of basis-aware η-sampling are nearer to "
        "human texts than those of η-sampling. Finlayson et al. 2024.",
        *("BA-η", "eta", (0.25,)),
    ),
    Primary(
        "min-p against top-p",
        "Texts of min-p are nearer to human texts than those of top-p that rejects as many human tokens. Nguyen et al. "
        "2025 claim an advantage, Schaeffer et al. 2025 found none.",
        *("min-p", "top-p", (0.1, 0.25)),
    ),
)
SECONDARY = (
    "MAUVE with the sentence model, rep-1, rep-2, rep-4, distinct-2, perplexity by the trigram model, −log p by the "
    "generator and length, for every sampler and share; each basis-aware sampler minus its threshold, and min-p minus "
    "top-p; exact support on known languages. They have no influence on a verdict."
)
INTERVAL = "Student's t over seeds, 95 %; prompts, human texts and random streams differ between seeds"
VERDICT = (
    f"supported: the interval of the difference lies above {MATTERS:g}; contradicted: it lies below {MATTERS:g}; "
    "cannot tell otherwise, and with fewer seeds than planned"
)


def make_plan(args: Namespace) -> dict[str, Any]:
    """Return everything that a result depends on, as JSON data."""
    deviation = ASSUMED[1] * math.sqrt(MIN_TEXTS / args.texts)
    chosen = [
        it
        for it in PRIMARIES
        if {it.better, it.than} <= set(args.samplers) and set(it.shares) <= set(args.shares)
    ]
    return {
        "model": args.model,
        "weights": args.weights,
        "texts": args.texts,
        "seeds": args.seeds,
        "tokens": [args.prompt_tokens, args.new_tokens],
        "human texts": {"continued": file_hash(args.data), "matched": file_hash(args.match)},
        "shares": args.shares,
        "samplers": args.samplers,
        "rank": args.rank,
        "texts to match on": args.match_texts,
        "other texts for the shares": args.other_texts,
        "MAUVE": {
            "clusterings": CLUSTERINGS,
            "scaling": SCALING,
            "states": "prompt and continuation, last hidden state of the generator",
            "sentences": "continuation alone, all-MiniLM-L6-v2",
            "null": "the human texts against as many other human texts",
        },
        "languages": {
            "branching": BRANCHING,
            **{
                "words": WORDS,
                "width": WIDTH,
                "sentences": SENTENCES,
                "batch": BATCH,
                "updates": args.updates,
            },
            **{"tokens": TOKENS, "contexts": CONTEXTS, "seeds": args.language_seeds},
        },
        "primary": [
            {
                **asdict(it),
                "shares": list(it.shares),
                "power": round(power(ASSUMED[0] - MATTERS, deviation, args.seeds), 2),
            }
            for it in (chosen if args.texts >= MIN_TEXTS and args.seeds > 1 else [])
        ],
        "assumed for the power": {"difference": ASSUMED[0], "deviation": round(deviation, 4)},
        "secondary": SECONDARY,
        "interval": INTERVAL,
        "verdict": VERDICT,
    }


def register(cells: Cells, plan: Mapping[str, Any]) -> None:
    """Write the plan before anything is measured, or compare it with the one in the file."""
    if "plan" not in cells.found:
        if cells.found:
            raise SystemExit("the file holds cells without a plan: name another file")
        today = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        cells.add("plan", {"hash": digest(plan), "date": today, "plan": plan})
    elif cells.found["plan"]["hash"] != digest(plan):
        old = cells.found["plan"]["plan"]
        changed = ", ".join(sorted(key for key in {*old, *plan} if old.get(key) != plan.get(key)))
        raise SystemExit(
            f"the file holds another plan (different: {changed}): name another file for this one"
        )


def verdict(low: float, high: float, seeds: int, planned: int) -> str:
    """Decide a primary quantity."""
    if seeds < planned:
        return f"cannot tell ({seeds} of {planned} seeds)"
    return "supported" if low > MATTERS else "contradicted" if high < MATTERS else "cannot tell"


def file_hash(path: Path) -> str:
    """Return the name of a file and the beginning of its SHA-256."""
    return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
