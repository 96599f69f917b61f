"""Close the bracket of cases that a search over all rows left open, by the interior-point method.

    settle the rows that are far from changing sides, solve for the others, look again: see globbing.py

Portnoy & Koenker 1997, §5.
papers.bib: portnoy1997gaussian
"""

from __future__ import annotations

import numpy as np

from unspool.basis.globbing import globbed
from unspool.basis.lewis import FAINT
from unspool.basis.searching import Searching

CLOSED = 1e-6


def close(searching: Searching, free: int, hold: bool) -> None:
    """Try to decide the open cases of a search over all rows, leaving `free` rows to be solved for.

    `hold` keeps hard tokens at s = 0: better conditioned, and right but where c is so small that their box
    binds.
    """
    proving, search = searching.proving, searching.search
    white, dist = proving.bench.white, proving.bench.dist
    hard_H, mass_V = dist.order_N[: search.metric.hard if hold else 0], dist.p * dist.kappa
    mass_V[mass_V <= FAINT] = 0
    for q, case in enumerate(searching.cases):
        goal, lam_K = float(search.goal_Q[q]), searching.best_KQ[:, q].astype(np.float64)
        own = float(search.x_KQ[:, q] @ lam_K)
        lam_K = lam_K / own if own > 0 else np.zeros_like(lam_K)
        sides = search.sides(q, mass_V)
        rounds = globbed(
            white, hard_H, mass_V, case.token, proving.slope, lam_K, *sides, goal, free, case.spend
        )
        for found_K, y_V, t in rounds:
            case.iterations += 1
            if t > goal:
                proving.reject_whole(case, y_V, t, "interior point")
            if case.verdict is None:
                proving.accept([case], found_K[:, None], "interior point")
            if case.verdict is not None or case.high * dist.kappa < t * (1 + CLOSED):
                break
    searching.drop_decided()
