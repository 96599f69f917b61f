"""Reshape and draw in one go, over no more tokens than the rules leave.

    y ~ f_k(… f_1(log p) …),   and the log-probability of y in the distribution that it was drawn from

The same as the plain way (each transform in turn on the whole vocabulary, normalised in between, then
Multinomial) up to rounding, and with the same token for the same roll of the dice: what a rule leaves stays
in the order of the vocabulary. Rules that are not in `RULES` are applied in the plain way, wherever they
stand.

The last rules and the roll are compiled where numba is there (`decode/compiled`), and a few calls of torch
(`rows`) where it is not. Either knows where rounding might decide, and asks the `referee` then: which way is
taken never changes a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.multinomial import parts
from unspool.decode.shortlist import nuclei, score_cuts
from unspool.decode.shortlist.referee import decide
from unspool.decode.shortlist.rows import Shortlist
from unspool.decode.transforms.nucleus import TopP, Typical
from unspool.decode.transforms.scores import applied, peaks
from unspool.decode.transforms.temperature import Temperature
from unspool.decode.transforms.thresholds import Epsilon, Eta, MinP, TopA, TopK, TopNSigma
from unspool.engine import compiler_obstacle
from unspool.interfaces import Step, Transform

COMPILED = compiler_obstacle() is None
"""Which of the two ways is taken; they find the same tokens."""
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


def pays(scores_NV: Tensor) -> bool:
    """Whether this way is faster: a CPU, single precision, a large vocabulary."""
    return scores_NV.shape[1] >= LARGE and scores_NV.dtype == torch.float32 and scores_NV.device.type == "cpu"


def draw(
    step: Step, history: Sequence[Hypothesis], transforms: Sequence[Transform], u_N: Tensor
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
        scores_NV = applied(rule, scores_NV, step, history).log_softmax(dim=-1)
    return drawn(scores_NV.detach(), run, u_N)


def drawn(scores_NV: Tensor, rules: Sequence[Transform], u_N: Tensor) -> tuple[Tensor, Tensor]:
    """The same where all the rules are of `RULES`."""
    for rule in rules:
        if isinstance(rule, TopK) and rule.k > scores_NV.shape[1]:
            rule.keeps(scores_NV)  # refuses, in its own words
    quick = _compiled if COMPILED else _in_torch
    token_N, logp_N, sure_N = quick(scores_NV, rules, u_N)
    if not bool(sure_N.all()):
        peaks(scores_NV)
        for row in (~sure_N).nonzero()[:, 0].tolist():
            token_N[row], logp_N[row] = decide(scores_NV[row].numpy(), rules, float(u_N[row]))
    return token_N, logp_N


def _compiled(scores_NV: Tensor, rules: Sequence[Transform], u_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from unspool.engine.sampling import draw  # only where numba is there

    found = draw(scores_NV.contiguous().numpy(), rules, u_N.numpy())
    return torch.from_numpy(found.token), torch.from_numpy(found.logp), torch.from_numpy(found.sure)


def _in_torch(scores_NV: Tensor, rules: Sequence[Transform], u_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    portions = parts(*scores_NV.shape)
    found = [shorten(scores_NV[part], rules).draw(u_N[part]) for part in portions]
    token_N, logp_N, sure_N = (torch.cat(each) for each in zip(*found, strict=True))
    return token_N, logp_N, sure_N


def shorten(scores_NV: Tensor, rules: Sequence[Transform]) -> Shortlist:
    """What the rules leave of every row; each must be one of `RULES`."""
    rows = Shortlist.of(scores_NV)
    for rule in rules:
        rows = RULES[type(rule)](rule, rows)
    return rows
