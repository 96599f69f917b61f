"""Claim (Lemma A.2): the wider the contexts of a sense are spread, the larger is its learnt θ.

    K_θ(h, w) = |h||w| (a exp(−θ cos(h, w)) − a):   a larger θ is flatter at small angles

Miao et al. 2019, appendix A, Lemma A.2 (papers.bib: miao2019kernelized).
"""

from __future__ import annotations

from itertools import pairwise

import torch

from unspool.heads.kerbs import Kerbs
from unspool.lab.claim import Claim, Numbers, Progress, kerbs, tracked
from unspool.lab.claims.second_sense import EACH, WIDTH, descend
from unspool.plots.seeds import chart, lines

SPREADS = tuple(0.3 + 0.2 * k for k in range(8))


def learnt_theta(seed: int, spread: float) -> float:
    """Learn only θ of one word in a cluster, among twenty other words."""
    rng = torch.Generator().manual_seed(seed)
    near = torch.eye(WIDTH)[0] + spread * torch.randn(2 * EACH, WIDTH, generator=rng) / WIDTH**0.5
    contexts = torch.cat([near, torch.randn(2 * EACH, WIDTH, generator=rng)])
    hidden = 8**0.5 * torch.nn.functional.normalize(contexts, dim=-1)
    targets = torch.cat([torch.zeros(2 * EACH).long(), 1 + torch.arange(2 * EACH) % 20])
    head = Kerbs(WIDTH, torch.arange(21), 21)
    head.senses_SD.data = torch.zeros(21, WIDTH)
    head.senses_SD.data[0, 0] = 1.5 * 8**0.5
    for _ in range(60):
        descend(head, [head.theta_S], hidden, targets, 5.0)
    return float(head.theta_S.detach()[0])


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure eight spreads."""
    del quick  # it takes a second
    thetas = [learnt_theta(seed, spread) for spread in tracked(SPREADS, progress)]
    risen = sum(after > before for before, after in pairwise(thetas))
    return {
        "θ, narrowest": thetas[0],
        "θ, widest": thetas[-1],
        "steps of the spread at which θ rises, of 7": risen,
        "spread": list(SPREADS),
        "θ": thetas,
    }


CLAIM = Claim(
    name="wider_senses",
    statement="Lemma A.2: KerBS learns variances. The wider a word's contexts are spread, the larger is its "
    "θ.",
    source=kerbs("Lemma A.2"),
    measured="Fixed context vectors in 8 dimensions: one word's around an axis, at eight spreads, and "
    "twenty other words' anywhere. Only the word's θ is learnt, by 60 steps of gradient descent.",
    criterion={
        "θ rises at 6 or more of the 7 steps of the spread": lambda n: (
            n["steps of the spread at which θ rises, of 7"] >= 6
        ),
        "from the narrowest to the widest by more than 1": lambda n: n["θ, widest"] - n["θ, narrowest"] > 1,
    },
    measure=measure,
    draw=chart(lines("spread", {"θ": "θ of the word"}, "spread of the word's contexts", "θ learnt")),
    limits="The appendix proves it for small θ and one sense, with an equation (11) that has no positive "
    "root as printed; what is measured is the statement.",
)
