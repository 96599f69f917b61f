"""Try forged and mutated certificates on the verifier of `unspool.basis`, and compare it with exact rational arithmetic.

    python benchmarks/certificates.py --count 10000

The solver proves its verdicts on small random problems of every kind that ever produced a wrong certificate. Each proof
is then mutated: other tokens, τ and p̂; λ that overflow, underflow or sit on the last digit of the boundary; y that
balances against a token of tiny probability, and so on. `verify_certificate` says whether a certificate passes. An
independent check says whether it is true, from the definition: an acceptance is an inequality between sums of
fractions; a rejection is a linear program, solved by the simplex method in fractions (Bland's rule, so it terminates).
The exit status is 1 if a false certificate passes, or if a true acceptance or a certificate of the solver is refused.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from threadpoolctl import threadpool_limits

from unspool.basis import Acceptance, BasisTest, Rejection, verify_certificate

TAUS = (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
KINDS = ("gaussian", "lattice", "twins", "constant", "dependent", "tiny", "zeros", "scaled", "hidden")


Forgery = tuple[str, Acceptance | Rejection, np.ndarray, np.ndarray, float]
"""(kind, certificate, W, p, τ): the fields of a Claim."""


@dataclass
class Claim:
    """A certificate, what it is about, and where it comes from."""

    kind: str
    certificate: Acceptance | Rejection
    W: np.ndarray
    p: np.ndarray
    tau: float


def fractions(values: np.ndarray) -> list[Fraction]:
    return [Fraction(float(x)) for x in values]


def wide(W: np.ndarray) -> list[list[Fraction]]:
    """The rows of W̃ = [W, 1]."""
    return [[*fractions(row), Fraction(1)] for row in W]


class Judge:
    """True is what is true of the numbers as they are."""

    def __call__(self, claim: Claim) -> bool:
        c = Fraction(claim.tau) / (1 - Fraction(claim.tau))
        p = fractions(claim.p / claim.p.sum())
        it = claim.certificate
        if isinstance(it, Acceptance):
            return self.accepted(it, wide(claim.W), p, c)
        return self.rejected(it, wide(claim.W), p, c)

    def accepted(self, it: Acceptance, W: list[list[Fraction]], p: list[Fraction], c: Fraction) -> bool:
        """Σ p·max(c·s, −s) over the others is less than pᵢ·sᵢ."""
        if not np.isfinite(it.dual_M).all():
            return False
        slopes = fractions(it.dual_M)
        s = [sum(w * x for w, x in zip(row, slopes, strict=True)) for row in W]
        f = sum(q * max(c * x, -x) for j, (q, x) in enumerate(zip(p, s, strict=True)) if j != it.token)
        return f < p[it.token] * s[it.token]

    def rejected(self, it: Rejection, W: list[list[Fraction]], p: list[Fraction], c: Fraction) -> bool:
        """Some y in the box, a millionth of p from what is written, balances exactly: a linear program."""
        if not np.isfinite(it.shift_N).all() or len(set(it.rows_N.tolist())) < len(it.rows_N):
            return False
        y = [Fraction(0)] * len(p)
        for j, x in zip(it.rows_N.tolist(), fractions(it.shift_N), strict=True):
            y[j] = x
        others = [j for j in range(len(p)) if j != it.token]
        low = {j: max(-p[j], y[j] - p[j] / 10**6) for j in others}
        high = {j: min(c * p[j], y[j] + p[j] / 10**6) for j in others}
        if any(low[j] > high[j] for j in others):
            return False
        wanted = [
            p[it.token] * W[it.token][k] - sum(low[j] * W[j][k] for j in others) for k in range(len(W[0]))
        ]
        return feasible([W[j] for j in others], [high[j] - low[j] for j in others], wanted)


def feasible(rows: list[list[Fraction]], widths: list[Fraction], wanted: list[Fraction]) -> bool:
    """Whether Σ xⱼ·rowⱼ = wanted for some 0 ≤ x ≤ widths: the simplex method in fractions, by Bland's rule."""
    n, m = len(rows), len(wanted)
    table = []
    for k in range(m):
        sign = -1 if wanted[k] < 0 else 1
        slack = [Fraction(0)] * n
        table.append([sign * row[k] for row in rows] + slack + [sign * wanted[k]])
    for j in range(n):
        line = [Fraction(0)] * (2 * n) + [widths[j]]
        line[j] = line[n + j] = Fraction(1)
        table.append(line)
    # The first m equations have artificial variables, whose sum is driven to zero; the others their slacks.
    basis = [-1] * m + [n + j for j in range(n)]
    cost = [sum(table[k][j] for k in range(m)) for j in range(2 * n + 1)]
    while cost[-1] > 0:
        enter = next((j for j in range(2 * n) if cost[j] > 0 and j not in basis), None)
        if enter is None:
            return False
        ratios = [(line[-1] / line[enter], basis[at], at) for at, line in enumerate(table) if line[enter] > 0]
        if not ratios:
            return False
        at = min(ratios)[2]
        pivot = [x / table[at][enter] for x in table[at]]
        for other, line in enumerate(table):
            if other != at and line[enter]:
                table[other] = [x - line[enter] * y for x, y in zip(line, pivot, strict=True)]
        cost = [x - cost[enter] * y for x, y in zip(cost, pivot, strict=True)]
        table[at], basis[at] = pivot, enter
    return True


def problem(dice: np.random.Generator) -> tuple[str, np.ndarray, np.ndarray, int, float]:
    """(W, p, token, τ), of every kind that has fooled somebody."""
    small = dice.random() < 0.98  # a large one takes the judge a second
    vocabulary = int(dice.integers(3, 9) if small else dice.integers(9, 17))
    width = int(dice.integers(1, 4) if small else dice.integers(4, 7))
    W = dice.standard_normal((vocabulary, width))
    p = dice.dirichlet(np.full(vocabulary, dice.choice([0.3, 1.0, 5.0])))
    p = np.maximum(p, 1e-12)
    kind = str(dice.choice(KINDS))
    match kind:
        case "lattice":
            W = np.round(2 * W)
        case "twins":
            W[1] = W[0]
        case "constant":
            W[:, 0] = 10.0 ** dice.integers(0, 12) + np.round(3 * W[:, 0])
        case "dependent":
            W[:, -1] = 2 * W[:, 0]
        case "tiny":
            some = dice.random(vocabulary) < 0.5
            p[some] *= 10.0 ** -dice.integers(3, 20)
        case "zeros":
            p[dice.random(vocabulary) < 0.3] = 0
        case "scaled":
            W *= 10.0 ** dice.integers(-160, 150)
        case "hidden":
            W[-1, -1] = 10.0 ** dice.integers(3, 15)
            p[-1] = 1e-30
    if not p.any():
        p[:] = 1
    p /= p.sum()
    return kind, W, p, int(dice.choice(np.flatnonzero(p))), float(dice.choice(TAUS))


def own_claims(dice: np.random.Generator) -> Iterator[Claim]:
    """What the solver says of a few problems, with its test."""
    while True:
        kind, W, p, token, tau = problem(dice)
        test = BasisTest(W)
        verdict = test.accepts(p, token, tau=tau)
        if verdict.decided:
            rows = np.asarray(test.weight, dtype=np.float64)
            yield Claim(f"own, {kind}, {verdict.method}", verdict.certificate, rows, p, tau)


def forgeries(dice: np.random.Generator, claim: Claim) -> Iterator[Forgery]:
    """Lies, half-truths and truths made of somebody's claim."""
    it, W, p, tau = claim.certificate, claim.W, claim.p, claim.tau
    other = int(dice.integers(len(p)))
    yield "another token", replace(it, token=other), W, p, tau
    moved = tau * (1 + dice.choice([-1, 1]) * 10.0 ** -dice.integers(1, 16))
    yield "another τ", it, W, p, float(np.clip(moved, 1e-9, 0.999))
    yield "another p", it, W, dice.permutation(p), tau
    if isinstance(it, Acceptance):
        for kind, slopes in other_slopes(dice, it.dual_M):
            yield kind, replace(it, dual_M=slopes), W, p, tau
        edge = meeting(it, W, p)
        for _ in range(2):
            there = edge * (1 + int(dice.integers(-3, 4)) * 2.0**-53)
            if 1e-9 < there < 0.999:
                yield "where f(λ) meets p̂ᵢ", it, W, p, there
        return
    for kind, rows, shift in other_shifts(dice, it.rows_N, it.shift_N, p):
        yield kind, Rejection(it.token, rows, shift), W, p, tau
    yield from beside_a_balance(dice, it.token, W, p, tau)


def other_slopes(dice: np.random.Generator, slopes: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """λ, mutated."""
    noise = 10.0 ** -dice.integers(0, 17) * dice.standard_normal(len(slopes))
    with np.errstate(over="ignore"):  # ∞ is a forgery as good as any
        larger = slopes * 10.0 ** dice.integers(-300, 300)
    yield "λ times a power", larger
    yield "λ disturbed", slopes * (1 + noise)
    yield "overflow", np.sign(slopes) * 10.0 ** dice.integers(300, 309)
    yield "underflow", np.sign(slopes) * 5e-324 * dice.integers(1, 4, len(slopes))
    yield "no number", np.full(len(slopes), dice.choice([np.nan, np.inf, 0.0]))
    yield "anything", dice.standard_normal(len(slopes))


def other_shifts(
    dice: np.random.Generator, rows: np.ndarray, shift: np.ndarray, p: np.ndarray
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """y, mutated."""
    small = 10.0 ** -dice.integers(0, 17)
    noise = small * dice.standard_normal(len(shift))
    yield "y disturbed", rows, shift * (1 + noise)
    yield "y scaled", rows, shift * (1 + small)
    yield "off a little", rows, shift + noise * p[rows]
    yield "rows exchanged", dice.permutation(rows), shift
    yield "rows twice", np.append(rows, rows[:1]), np.append(shift, shift[:1])
    yield "no number", rows, np.where(shift > 0, dice.choice([np.nan, np.inf]), shift)


def meeting(it: Acceptance, W: np.ndarray, p: np.ndarray) -> float:
    """The τ at which an acceptance stops being one."""
    with np.errstate(all="ignore"):
        s = np.column_stack([W, np.ones(len(W))]) @ it.dual_M
        s = s / s[it.token]
        others = np.arange(len(p)) != it.token
        above = p[others] @ np.maximum(s[others], 0)
        c = (p[it.token] - p[others] @ np.maximum(-s[others], 0)) / above if above > 0 else np.inf
        return float(c / (1 + c)) if np.isfinite(c) and c > 0 else 0.0


def beside_a_balance(
    dice: np.random.Generator, token: int, W: np.ndarray, p: np.ndarray, tau: float
) -> Iterator[Forgery]:
    """Shifts that balance among themselves, and a token so improbable that it hardly shows beside them."""
    others = np.flatnonzero((np.arange(len(p)) != token) & (p > 0))
    A = np.column_stack([W, np.ones(len(W))])[others].T
    null = np.linalg.svd(A / np.maximum(np.abs(A).max(axis=1, keepdims=True), 1e-300))[2][len(A) :]
    if not len(null):
        return
    q = p.copy()
    q[token] = q[others].sum() * 10.0 ** -dice.integers(6, 19)
    q /= q.sum()
    room = np.min(q[others] / np.maximum(np.abs(null[0]), 1e-300)) * min(1, tau / (1 - tau))
    yield "beside a balance", Rejection(token, others, 0.9 * room * null[0]), W, q, tau


def named() -> Iterator[Claim]:
    """Three false proofs that a verifier in floating point has passed."""
    p = np.array([0.4, 0.5, 0.1])
    W = np.array([[-1.0], [1.0], [2.0]])
    yield Claim("overflow", Acceptance(2, np.array([1e308, 0.0])), W, p, 0.5)
    W = np.array([[-0.3], [0.4], [0.6]])
    yield Claim("underflow", Acceptance(2, np.array([5e-324, 0.0])), W, p, 0.5)
    p = np.append(np.array([0.25, 0.5, 0.25]) * (1 - 5e-11), 5e-11)
    W = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    proof = Rejection(3, np.array([0, 1, 2]), np.array([0.24, -0.48, 0.24]))
    yield Claim("beside a balance", proof, W, p, 0.5)


@dataclass
class Tally:
    """What was said of the certificates."""

    own: int = 0
    seen: Counter[tuple[str, bool, bool]] = field(default_factory=Counter)
    """How many of each kind: (kind, passed, true)."""
    wrong: list[Claim] = field(default_factory=list)
    """False and passed; or true and refused, where that may not be: acceptances, and the solver's own."""

    def count(self, claim: Claim, judge: Judge, own: bool = False) -> None:
        passes, true = verify_certificate(claim.certificate, claim.W, claim.p, claim.tau), judge(claim)
        if own:
            self.own += 1
            right = passes and true
        else:
            self.seen[claim.kind, passes, true] += 1
            right = passes == true or (isinstance(claim.certificate, Rejection) and not passes)
        if not right:
            self.wrong.append(claim)


def tally(count: int, seed: int = 11, progress: Progress | None = None) -> Tally:
    """Make so many forgeries, and have each checked and judged."""
    dice, judge, out = np.random.default_rng(seed), Judge(), Tally()
    task = progress.add_task("certificates", total=count) if progress else None
    for claim in named():
        out.count(claim, judge)
    for own in own_claims(dice):
        out.count(own, judge, own=True)
        for forgery in forgeries(dice, own):
            out.count(Claim(*forgery), judge)
        if progress and task is not None:
            progress.update(task, completed=out.seen.total())
        if out.seen.total() >= count:
            return out
    raise AssertionError("claims come without end")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000, help="forgeries, at least")
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    console, began = Console(width=None if sys.stdout.isatty() else 110), time.process_time()
    with threadpool_limits(1), Progress(console=Console(stderr=True)) as progress:
        out = tally(args.count, args.seed, progress)
    show(out, console)
    for claim in out.wrong:
        console.print("WRONG", claim, style="red")
    console.print(f"{time.process_time() - began:.0f} s of one core")
    return 1 if out.wrong else 0


def show(out: Tally, console: Console) -> None:
    columns = ("made", "true and passed", "false and refused", "true and refused", "false and passed")
    outcomes = ((True, True), (False, False), (False, True), (True, False))
    table = Table("kind", *columns, title=f"{out.seen.total()} forgeries, {out.own} of the solver's own")
    for kind in sorted({kind for kind, _, _ in out.seen}):
        counts = [out.seen[kind, passed, true] for passed, true in outcomes]
        table.add_row(kind, *map(str, (sum(counts), *counts)))
    totals = [sum(out.seen[key] for key in out.seen if key[1:] == outcome) for outcome in outcomes]
    table.add_section()
    table.add_row("all", *map(str, (sum(totals), *totals)))
    console.print(table)
    console.print(
        f"wrong: {len(out.wrong)} (false ones that pass, true ones of the solver's or acceptances refused)"
    )


if __name__ == "__main__":
    sys.exit(main())
