"""Speed and verdicts of the basis-aware test on the distributions of a real model, beside general LP solvers.

    python benchmarks/basis.py                                         # tables
    python benchmarks/basis.py --ranks 20 100 --peers 5 --json out/basis.json
    python benchmarks/basis.py --ranks 20 --agree 60 --json out/agree.json

Tokens below τ are drawn from the model's next-token distributions, as a sampler would, and each is tested on its own.
Work that is done once per distribution (sorting the head, summing the tail, κ) is timed as "step", the rest as "test";
comparisons use their sum. --peers solves some of the same cases with two general solvers in the same run: the paper's
program (cvxpy, one parameterised problem, solved by Clarabel; p ≥ 0 is a constraint), and the scaled program of
`unspool.basis.solve_linear_program` (HiGHS). --agree compares with HiGHS alone. Results are saved as they are measured;
results that --json already contains are not measured again.

Everything runs on one core. Times are processor time, so other programs do not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_limits

import unspool as us
from unspool.basis import BasisTest

TAUS = (0.01, 0.1, 0.3, 0.5, 0.9)
PROMPTS = [
    "The harbour froze in the second week of January, and for the first time in living memory the boats",
    "A vaccine trains the immune system to recognise a part of a virus, so that when the real one arrives",
    "There are three ways to get from the station to the lake. The shortest goes over the hill, but in winter",
    "The minister declined to answer the question, saying only that the report would be published before",
    "import json\n\ndef read_config(path):\n    with open(path) as file:\n        config = json.load(file)\n    if",
    "Once upon a time there was a tailor who could sew anything but his own coat. Every morning he",
    "In the final minute the goalkeeper came forward for the corner, which nobody on the bench had told her to",
    "Q: How many moons does Mars have, and what are they called? A: Mars has two moons, which are called",
    "The novel was first published in 1931 in a small edition, most of which was lost when the printer's",
    "Mix the flour and the salt, add the water a little at a time, and knead the dough for ten minutes until it",
    "Interest rates have risen for the fifth time this year, and economists disagree about whether households",
    "My sister called last night to say that she is moving back home, which surprised everyone except",
]


def read(path: Path | None) -> list[str]:
    if path is None:
        return PROMPTS
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [json.loads(line)["text"] if path.suffix == ".jsonl" else line for line in lines]


def distributions(model: Any, texts: list[str], count: int, longest: int = 64) -> np.ndarray:
    """The model's probabilities of the next token after as many beginnings of the texts, (N, V)."""
    dice, rows = np.random.default_rng(0), []
    for n in range(count):
        ids = model.tokenizer.encode(texts[n % len(texts)])[:longest]
        rows.append(ids[: int(dice.integers(min(4, len(ids)), len(ids) + 1))])
    with torch.inference_mode():
        parts = [model.start(rows[i : i + 10])[0].logp_NV.double().exp() for i in range(0, count, 10)]
    return torch.cat(parts).numpy()


def ask_about(p_NV: np.ndarray, tokens: int) -> list[dict[str, Any]]:
    """Tokens below each τ, drawn from p̂ itself."""
    dice, cases = np.random.default_rng(1), []
    for n, p_V in enumerate(p_NV):
        for tau in TAUS:
            below_V = np.where(p_V < tau, p_V, 0)
            drawn = np.unique(dice.choice(len(p_V), size=tokens, p=below_V / below_V.sum()))
            cases += [{"n": n, "tau": tau, "token": int(i), "p": float(p_V[i])} for i in drawn]
    return cases


class Found:
    """What was measured, kept in a file while it is being measured."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.parts: dict[str, Any] = {}
        if path is not None and path.exists():
            self.parts = json.loads(path.read_text(encoding="utf-8"))

    def save(self) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.parts, indent=1), encoding="utf-8")


def timed(run: Any) -> tuple[Any, float]:
    start = time.process_time()
    out = run()
    return out, 1000 * (time.process_time() - start)


def test_all(test: BasisTest, p_NV: np.ndarray, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for case in cases[:: max(1, len(cases) // 20)]:  # warm
        test.accepts(p_NV[case["n"]], case["token"], tau=case["tau"])
    lines = []
    for case in track(cases, description=f"{test}", console=Console(stderr=True)):
        p_V = p_NV[case["n"]]
        step, step_ms = timed(lambda p=p_V: test.step(p))
        verdict, ms = timed(lambda s=step, c=case: s.accepts(c["token"], tau=c["tau"]))
        kind = verdict.method if not verdict.decided else f"{'+' if verdict else '−'} {verdict.method}"
        found = {"accepted": verdict.accepted, "how": kind}
        lines.append({**case, **found, "step_ms": step_ms, "ms": ms})
    return lines


def masks(test: BasisTest, p_NV: np.ndarray, count: int) -> list[dict[str, Any]]:
    """The 100 most probable tokens at once, step and all."""
    lines = []
    for p_V in p_NV[:count]:
        for tau in TAUS:
            kept_V, ms = timed(lambda p=p_V, t=tau: test.mask(p, t, top=100))
            lines.append({"tau": tau, "kept": int(kept_V.sum()), "ms": ms})
    return lines


class AsPosed:
    """Find p with W̃ᵀp = W̃ᵀp̂, 0 ≤ p ≤ e^δ·p̂, pᵢ = 0: a feasibility problem for a conic solver."""

    def __init__(self, W_VR: np.ndarray) -> None:
        import cvxpy as cp

        self.cp, self.W_VM = cp, np.column_stack([W_VR, np.ones(len(W_VR))])
        p = cp.Variable(len(W_VR), nonneg=True)
        self.target, self.most = cp.Parameter(self.W_VM.shape[1]), cp.Parameter(len(W_VR), nonneg=True)
        self.problem = cp.Problem(cp.Minimize(0), [self.W_VM.T @ p == self.target, p <= self.most])

    def __call__(self, p_V: np.ndarray, i: int, tau: float) -> str:
        self.target.value, most_V = p_V @ self.W_VM, p_V / (1 - tau)
        most_V[i] = 0
        self.most.value = most_V
        try:
            self.problem.solve(solver=self.cp.CLARABEL)
        except self.cp.error.SolverError:
            return "failed"
        return str(self.problem.status)


def some_of(lines: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The same random cases every time, a case for each token once and more of them for more."""
    return [lines[k] for k in np.random.default_rng(2).permutation(len(lines))[:count]]


def compare(test: BasisTest, p_NV: np.ndarray, line: dict[str, Any], conic: AsPosed | None) -> dict[str, Any]:
    """Ours and theirs on one case, one after the other."""
    p_V, i, tau = p_NV[line["n"]], line["token"], line["tau"]
    ours = [timed(lambda: test.accepts(p_V, i, tau=tau)) for _ in range(3)]
    out = {key: line[key] for key in ("n", "tau", "token", "p")}
    out |= {
        "accepted": ours[0][0].accepted,
        "how": ours[0][0].method,
        "ms": statistics.median(x[1] for x in ours),
    }
    out["verified"] = ours[0][0].decided and test.verify(ours[0][0].certificate, p_V, tau)
    try:
        truth, out["highs_ms"] = timed(lambda: test.solve_linear_program(p_V, i, tau))
        out |= {
            "theta": truth.theta,
            "agrees": bool(truth.is_borderline or truth.accepted == out["accepted"]),
        }
    except ArithmeticError as error:
        out["highs_error"] = str(error)
    if conic is not None:
        out["clarabel"], out["clarabel_ms"] = timed(lambda: conic(p_V, i, tau))
    return out


def compare_some(
    test: BasisTest,
    p_NV: np.ndarray,
    lines: list[dict[str, Any]],
    kind: str,
    count: int,
    found: Found,
    console: Console,
) -> None:
    """Ask the solvers about `count` cases, saving each answer."""
    known = found.parts.setdefault(kind, {}).setdefault(str(test.rank), [])
    conic = (
        AsPosed(np.asarray(test.weight, dtype=np.float64)) if kind == "peers" and count > len(known) else None
    )
    wanted = some_of(lines, count)[len(known) :]
    for line in track(wanted, description=f"{kind}, rank {test.rank}", console=Console(stderr=True)):
        known.append(compare(test, p_NV, line, conic))
        if not known[-1].get("agrees", True) or not known[-1]["verified"]:
            console.print("DISAGREES", known[-1], style="red")
        found.save()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=Path, help="one text a line, or JSONL with a text field")
    parser.add_argument("--ranks", type=int, nargs="+", default=[20, 100, 576])
    parser.add_argument("--distributions", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=3, help="drawn per distribution and tau")
    parser.add_argument(
        "--masks", type=int, default=12, help="distributions whose top 100 are tested at once"
    )
    parser.add_argument("--peers", type=int, default=0, help="cases per rank for both general solvers")
    parser.add_argument("--agree", type=int, default=0, help="cases per rank for HiGHS alone")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found, console = Found(args.json), Console(width=None if sys.stdout.isatty() else 150)
    with threadpool_limits(1):
        model = us.load(args.model)
        p_NV = distributions(model, read(args.prompts), args.distributions)
        W, cases = model.output_matrix.detach(), ask_about(p_NV, args.tokens)
        for rank in args.ranks:
            test, setup_ms = timed(lambda r=rank: BasisTest(W, r))
            if str(rank) not in found.parts.setdefault("tests", {}):
                found.parts["tests"][str(rank)] = test_all(test, p_NV, cases)
                found.parts.setdefault("masks", {})[str(rank)] = masks(test, p_NV, args.masks)
                found.parts.setdefault("setup_ms", {})[str(rank)] = setup_ms
                found.save()
            lines = found.parts["tests"][str(rank)]
            compare_some(test, p_NV, lines, "peers", args.peers, found, console)
            compare_some(test, p_NV, lines, "agree", args.agree, found, console)
    show(
        found.parts, [str(rank) for rank in args.ranks], console, f"{args.model}, {W.shape[0]} × {W.shape[1]}"
    )
    return 0


def show(parts: dict[str, Any], ranks: list[str], console: Console, what: str) -> None:
    table = Table(title=f"one test, {what}, processor time of one core")
    for column in (
        "rank",
        "tests",
        "step, median ms",
        "test, median ms",
        "mean",
        "p99",
        "most",
        "step + test, median",
        "undecided",
        "accepted",
        "top-100 mask ms",
        "setup s",
    ):
        table.add_column(column)
    for rank in ranks:
        lines = parts["tests"][rank]
        ms = np.array([line["ms"] for line in lines])
        step_ms = np.array([line["step_ms"] for line in lines])
        undecided = sum(line["how"] == "undecided" for line in lines)
        table.add_row(
            rank,
            str(len(lines)),
            f"{np.median(step_ms):.2f}",
            f"{np.median(ms):.2f}",
            f"{ms.mean():.2f}",
            f"{np.percentile(ms, 99):.1f}",
            f"{ms.max():.0f}",
            f"{np.median(step_ms + ms):.2f}",
            f"{100 * undecided / len(lines):.2f} %",
            f"{100 * np.mean([line['accepted'] for line in lines]):.0f} %",
            " · ".join(_mask_times(parts["masks"][rank])),
            f"{parts['setup_ms'][rank] / 1000:.1f}",
        )
    console.print(table)
    by_tau(parts, ranks, console)
    beside(parts, ranks, console)


def _mask_times(lines: list[dict[str, Any]]) -> list[str]:
    if not lines:
        return ["–"]
    ms = [line["ms"] for line in lines]
    return [f"median {statistics.median(ms):.0f}", f"mean {statistics.mean(ms):.0f}", f"most {max(ms):.0f}"]


def by_tau(parts: dict[str, Any], ranks: list[str], console: Console) -> None:
    table = Table(title="by τ: median / mean ms, accepted; and by what was proved")
    for column in ("rank", *map(str, TAUS), "proofs"):
        table.add_column(column)
    for rank in ranks:
        cells = []
        for tau in TAUS:
            lines = [line for line in parts["tests"][rank] if line["tau"] == tau]
            ms = [line["ms"] for line in lines]
            share = np.mean([line["accepted"] for line in lines])
            cells.append(f"{statistics.median(ms):.2f} / {statistics.mean(ms):.1f}, {100 * share:.0f} %")
        kinds = Counter(line["how"] for line in parts["tests"][rank])
        table.add_row(rank, *cells, ", ".join(f"{how} {count}" for how, count in kinds.most_common()))
    console.print(table)


def beside(parts: dict[str, Any], ranks: list[str], console: Console) -> None:
    table = Table(title="the same cases, ours and general solvers': medians, and the median of the ratios")
    for column in (
        "rank",
        "cases",
        "unspool ms",
        "HiGHS s",
        "ratio",
        "Clarabel s",
        "ratio",
        "disagreements",
        "Clarabel says",
    ):
        table.add_column(column)
    for rank in ranks:
        for kind in ("peers", "agree"):
            lines = parts.get(kind, {}).get(rank, [])
            if not lines:
                continue
            cells = []
            for solver in ("highs_ms", "clarabel_ms"):
                pairs = [(line[solver], line["ms"]) for line in lines if solver in line]
                ratio = statistics.median(a / b for a, b in pairs) if pairs else 0
                cells += (
                    [f"{statistics.median(a for a, _ in pairs) / 1000:.2f}", f"{ratio:.0f}"]
                    if pairs
                    else ["–", "–"]
                )
            wrong = sum(not line.get("agrees", True) or not line["verified"] for line in lines)
            unsolved = sum("highs_error" in line for line in lines)
            table.add_row(
                rank,
                str(len(lines)),
                f"{statistics.median(line['ms'] for line in lines):.2f}",
                *cells,
                f"{wrong}" + (f" ({unsolved} not solved)" if unsolved else ""),
                _statuses(lines),
            )
    console.print(table)


def _statuses(lines: list[dict[str, Any]]) -> str:
    """How often the conic solver's status is the verdict, and what it says where it is not."""
    said = [line for line in lines if "clarabel" in line]
    if not said:
        return "–"
    right = sum(line["clarabel"] == ("infeasible" if line["accepted"] else "optimal") for line in said)
    other = Counter(
        f"{line['clarabel']} for {'accepted' if line['accepted'] else 'rejected'}"
        for line in said
        if line["clarabel"] != ("infeasible" if line["accepted"] else "optimal")
    )
    return f"{right} of {len(said)} right" + "".join(f"; {count} {what}" for what, count in other.items())


if __name__ == "__main__":
    sys.exit(main())
