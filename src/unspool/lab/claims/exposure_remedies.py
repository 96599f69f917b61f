"""Claim: training on the model's own words improves its texts; remedies for exposure bias compared.

    scheduled sampling · unlikelihood · REINFORCE · minimum risk,   against maximum likelihood

He He's lecture, "Exposure bias: solutions"; Bengio et al. 2015 (papers.bib: bengio2015scheduled);
Ranzato et al. 2016 (papers.bib: ranzato2016sequence); Welleck et al. 2020
(papers.bib: welleck2020unlikelihood).
benchmarks/exposure.py measures them at equal processor time.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import unspool as us
from unspool.data.known_languages import Agreement
from unspool.lab.claim import Claim, Numbers, Progress, lecture, tracked
from unspool.lab.claims.degeneration import sentences
from unspool.lab.claims.exposure_bias import LANGUAGE
from unspool.lab.small_models import TRANSFORMER_LM, language, train_model
from unspool.plots.seeds import bars, chart

UPDATES, BEGIN = 240, 180
REWARD = f"{__name__}:possible"
MARGINS = {"scheduled sampling": 0.01, "unlikelihood": 0.01, "REINFORCE": 0.02, "minimum risk": 0.02}


@cache
def _truth() -> tuple[Agreement, Any]:
    truth = Agreement(**LANGUAGE)
    return truth, truth.codec()


def possible(said: str, wanted: str) -> float:
    """Return the reward: 1 for a possible sentence."""
    del wanted
    truth, codec = _truth()
    words = [token for token in codec.encode(said) if token not in (truth.bos, truth.eos)]
    return float(math.isfinite(truth.log_prob(words)))


def remedies(begin: int) -> dict[str, dict[str, Any]]:
    """Return the recipe changes of each remedy; own words are used from update `begin` on."""
    ask = {"prompt": 1, "stretch": 1.5, "begin": begin}
    decay = {"kind": "linear", "begin": 1.0, "slope": 0.002, "floor": 0.5}
    minimum = {"kind": "minimum_risk", "reward": REWARD, "samples": 4, "alpha": 0.05, "weight": 2.0}
    return {
        "maximum likelihood": {},
        "scheduled sampling": {"objective": {"kind": "scheduled_sampling", "decay": decay}},
        "unlikelihood": {"auxiliary": [{"kind": "unlikelihood", "weight": 0.2}]},
        "REINFORCE": {"auxiliary": [{"kind": "reinforce", "reward": REWARD, "weight": 1.0, **ask}]},
        "minimum risk": {"auxiliary": [{**minimum, **ask}]},
    }


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train each remedy from the same weights and batches."""
    data = language("agreement", seed, 3000, **LANGUAGE)
    updates, begin = (12, 10) if quick else (UPDATES, BEGIN)
    found: dict[str, float] = {}
    for name, tables in tracked(remedies(begin).items(), progress):
        made = train_model(data, TRANSFORMER_LM, updates, seed, **tables)
        result = sentences(made, _truth()[0], us.Sample(), 60 if quick else 500, seed)
        found[f"{name}: possible sentences"] = result.precision
        found[f"{name}: different sentences"] = result.different / result.texts
    return found


def _is_better(name: str, margin: float, n: Any) -> bool:
    return bool(n[f"{name}: possible sentences"] >= n["maximum likelihood: possible sentences"] + margin)


CLAIM = Claim(
    name="exposure_remedies",
    statement="Training a model to continue its own words (scheduled sampling, unlikelihood, "
    "sequence-level rewards) improves its texts.",
    source=lecture(
        "Exposure bias: solutions", "bengio2015scheduled", "ranzato2016sequence", "welleck2020unlikelihood"
    ),
    measured=f"Transformers learn an artificial language with distant agreement for {UPDATES} updates, by "
    f"maximum likelihood alone and with each remedy (rewards, from update {BEGIN} on: 1 for a possible "
    "sentence). Of 500 sentences sampled from each, the share that is possible.",
    criterion={
        f"{name}: at least {margin:g} more of the sentences are possible": partial(_is_better, name, margin)
        for name, margin in MARGINS.items()
    },
    measure=measure,
    draw=chart(
        bars(
            {f"{name}: possible sentences": name for name in remedies(1)},
            "sampled sentences that are possible",
            xlim=(0, 1),
        )
    ),
    limits="Equal updates, not equal time: those of REINFORCE and minimum risk cost several times as much.",
)
