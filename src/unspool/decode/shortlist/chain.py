"""Reshape and draw in one go, over no more tokens than the rules leave.

    y ~ f_k(… f_1(log p) …),   and the log-probability of y in the distribution that it was drawn from

The same as the plain way (each transform in turn on the whole vocabulary, normalised in between, then
Multinomial) up to rounding, and with the same token for the same roll of the dice: what a rule leaves stays
in the order of the vocabulary. Rules that are not in `RULES` are applied in the plain way, wherever they
stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from unspool.decode.path import Path
from unspool.decode.picks.multinomial import parts
from unspool.decode.shortlist import nuclei, score_cuts
from unspool.decode.shortlist.rows import Shortlist
from unspool.decode.transforms.epsilon import Epsilon
from unspool.decode.transforms.eta import Eta
from unspool.decode.transforms.min_p import MinP
from unspool.decode.transforms.temperature import Temperature
from unspool.decode.transforms.top_a import TopA
from unspool.decode.transforms.top_k import TopK
from unspool.decode.transforms.top_n_sigma import TopNSigma
from unspool.decode.transforms.top_p import TopP
from unspool.decode.transforms.typical import Typical
from unspool.protocols import Step, Transform

LARGE = 4096
"""Smaller vocabularies are drawn from faster in the plain way."""


def temperature(rule: Temperature, rows: Shortlist) -> Shortlist:
    """Every score divided by t; nothing is cut."""
    return Shortlist(rule(rows.score_NW, Step(rows.score_NW), ()), rows.vocabulary, rows.tokens)


RULES: dict[type, Callable[[Any, Shortlist], Shortlist]] = {
    Temperature: temperature,
    TopK: score_cuts.top_k,
    MinP: score_cuts.min_p,
    TopNSigma: score_cuts.top_n_sigma,
    Epsilon: score_cuts.epsilon,
    Eta: score_cuts.eta,
    TopA: score_cuts.top_a,
    TopP: nuclei.top_p,
    Typical: nuclei.typical,
}


def pays(scores_NV: Tensor, transforms: Sequence[Transform]) -> bool:
    """Whether this way is faster: a CPU, single precision, a large vocabulary, and a rule of `RULES`."""
    return (
        scores_NV.device.type == "cpu"
        and scores_NV.dtype == torch.float32
        and scores_NV.shape[1] >= LARGE
        and any(type(rule) in RULES for rule in transforms)
    )


def draw(
    step: Step, history: Sequence[Path], transforms: Sequence[Transform], u_N: Tensor
) -> tuple[Tensor, Tensor]:
    """(N) tokens, each at the share u of its row's mass, and (N) their log-probabilities."""
    scores_NV, run = step.logp_NV, list[Transform]()
    portions = parts(*scores_NV.shape)
    for rule in transforms:
        if type(rule) in RULES:
            run.append(rule)
            continue
        if run:
            scores_NV = torch.cat([shorten(scores_NV[part], run).whole() for part in portions])
            run = []
        scores_NV = rule(scores_NV, step, history).log_softmax(dim=-1)
    drawn = [shorten(scores_NV[part], run).draw(u_N[part]) for part in portions]
    return torch.cat([token_M for token_M, _ in drawn]), torch.cat([logp_M for _, logp_M in drawn])


def shorten(scores_NV: Tensor, rules: Sequence[Transform]) -> Shortlist:
    """What the rules leave of every row; each must be one of `RULES`."""
    rows = Shortlist.of(scores_NV)
    for rule in rules:
        rows = RULES[type(rule)](rule, rows)
    return rows
