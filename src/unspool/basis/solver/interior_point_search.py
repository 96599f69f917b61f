"""Close the bracket of cases that a search over all rows left open, by the interior-point method.

    settle the rows that are far from changing sides, solve for the others, look again (reduced_regression.py)

Portnoy & Koenker 1997, §5.
papers.bib: portnoy1997gaussian
"""

from __future__ import annotations

import numpy as np

from unspool.basis.solver.level_search import LevelSearch
from unspool.basis.solver.lewis_metric import FAINT
from unspool.basis.solver.reduced_regression import solve_reduced

CLOSED = 1e-6


def close_brackets(level: LevelSearch, free: int, hold: bool) -> None:
    """Try to decide the open cases of a search over all rows, leaving `free` rows to be solved for.

    `hold` keeps hard tokens at s = 0: better conditioned, and right but where c is so small that their box
    binds.
    """
    attempts, search = level.attempts, level.search
    white, dist = attempts.factors.white, attempts.factors.dist
    hard_H, mass_V = dist.order_N[: search.metric.hard if hold else 0], dist.p * dist.kappa
    mass_V[mass_V <= FAINT] = 0
    for q, case in enumerate(level.cases):
        goal, lam_K = float(search.goal_Q[q]), level.best_KQ[:, q].astype(np.float64)
        own = float(search.x_KQ[:, q] @ lam_K)
        lam_K = lam_K / own if own > 0 else np.zeros_like(lam_K)
        sides = search.sides(q, mass_V)
        rounds = solve_reduced(
            white, hard_H, mass_V, case.token, attempts.slope, lam_K, *sides, goal, free, case.spend
        )
        for found_K, y_V, t in rounds:
            case.iterations += 1
            if t > goal:
                attempts.reject_whole(case, y_V, t, "interior point")
            if case.verdict is None:
                attempts.accept([case], found_K[:, None], "interior point")
            if case.verdict is not None or case.high * dist.kappa < t * (1 + CLOSED):
                break
    level.drop_decided()
