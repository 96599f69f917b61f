"""Truncation rules on small models of a known language: support precision and recall, at several widths.

    python benchmarks/support.py --json out/support.json --picture out/support.svg

Widths that --json already contains are skipped.

The language is a Markov chain of order 2 with few possible words in every context. A model reads the last two words (two
embeddings and one hidden layer, the same for all) and ends in a softmax over `width` numbers: the narrower it is, the more
the softmax bottleneck forces it to give probability to impossible words. Every rule is set to keep the same mass of the
model's probability, and compared by exact support precision and recall. Also measured: how many of the tokens that only
basis-aware sampling keeps, or only ε keeps, are possible; the model's empirical δ; how often Corollary 1 fails at a τ; and
the distance from Theorem 2's optimum (Finlayson et al. 2024). Trained models are not at that optimum, which the test
assumes. So everything is measured a second time with the same output matrix and, for every context, the hidden vector
that is best for the truth.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

import unspool as us
from unspool.basis import BasisTest
from unspool.data.known_languages import ZipfMarkov
from unspool.diagnose.overestimation import failures, optimality_gap, underestimation
from unspool.evaluate.exact_support import support
from unspool.lab.small_models import NarrowTrigram, at_optimum, sample_contexts, train_narrow
from unspool.plots.canvas import canvas

TAUS = (0.01, 0.1, 0.5)
CLOSE = 2e-3
"""The exact test takes long: the mass it keeps is matched as closely as this."""
HALVINGS = 60


@dataclass(frozen=True)
class Dial:
    """A truncation rule with one setting, between its loosest and strictest values."""

    keeps: Callable[[float], Tensor]
    """Setting → (C, V), True for kept tokens."""
    loosest: float
    strictest: float


def at_mass(dial: Dial, p_CV: Tensor, mass: float, close: float = 0.0) -> tuple[float, Tensor]:
    """Find, by bisection, the strictest setting that keeps at least `mass` of p̂, and the kept tokens.

    The search stops early if the kept mass exceeds `mass` by at most `close`.
    """

    def kept_mass(kept_CV: Tensor) -> float:
        return float((p_CV.double() * kept_CV).sum(dim=-1).mean() / p_CV.double().sum(dim=-1).mean()) + 1e-12

    loose, strict = dial.loosest, dial.strictest
    kept_CV = dial.keeps(loose)
    if kept_mass(kept_CV) < mass:
        raise ValueError(f"the rule keeps less than {mass:g} of the mass at its loosest setting, {loose:g}")
    if kept_mass(strict_CV := dial.keeps(strict)) >= mass:
        return strict, strict_CV
    for _ in range(HALVINGS):
        middle = (loose + strict) / 2
        if kept_mass(middle_CV := dial.keeps(middle)) >= mass:
            loose, kept_CV = middle, middle_CV
            if kept_mass(kept_CV) <= mass + close:
                break
        else:
            strict = middle
    return loose, kept_CV


def dials(logp_CV: Tensor, matrix_VD: Tensor, ranks: list[int]) -> dict[str, Dial]:
    def truncation(rule, loosest: float, strictest: float) -> Dial:
        return Dial(lambda setting: us.survivors(rule(setting), logp_CV), loosest, strictest)

    found = {
        "epsilon": truncation(us.Epsilon, 0.0, 1.0),
        "eta": truncation(us.Eta, 0.0, 1.0),
        "top-p": truncation(us.TopP, 1.0, 1e-6),
        "min-p": truncation(us.MinP, 0.0, 1.0),
    }
    p_CV, best_CV = logp_CV.double().exp().numpy(), logp_CV == logp_CV.amax(dim=-1, keepdim=True)
    for rank in sorted({min(rank, matrix_VD.shape[1]) for rank in ranks}):
        test = BasisTest(matrix_VD, rank)

        def keeps(tau: float, test: BasisTest = test) -> Tensor:
            kept_CV = torch.from_numpy(test.mask(p_CV, tau))
            # What is drawn where everything is rejected.
            return torch.where(kept_CV.any(dim=-1, keepdim=True), kept_CV, best_CV)

        found[f"basis-aware, rank {rank}"] = Dial(keeps, 1e-9, 1 - 1e-6)
    return found


def examine(language: ZipfMarkov, model: NarrowTrigram, args: argparse.Namespace) -> dict:
    context_C2, true_CV = sample_contexts(language, args.contexts, args.seed)
    matrix_VD = model.head.weight.detach()
    with torch.no_grad():
        said = {"trained": model(context_C2), "optimal": at_optimum(matrix_VD, true_CV)}
    found = {name: judge(logp_CV, true_CV, matrix_VD, args) for name, logp_CV in said.items()}
    found["trained"]["safe"] = safe(said["trained"], true_CV, matrix_VD)
    exact_CV = at_optimum(matrix_VD, true_CV, pull=0.0)
    reached_C = optimality_gap(exact_CV, true_CV, matrix_VD).residual_C < 1e-12
    found["optimal"]["safe"] = safe(exact_CV[reached_C], true_CV[reached_C], matrix_VD)
    return found


def judge(logp_CV: Tensor, true_CV: Tensor, matrix_VD: Tensor, args: argparse.Namespace) -> dict:
    delta = underestimation(logp_CV, true_CV)
    gap = optimality_gap(logp_CV, true_CV, matrix_VD)
    return {
        "cross_entropy": -float((true_CV * logp_CV).sum(-1).mean()),
        "entropy": -float(torch.special.xlogy(true_CV, true_CV).sum(-1).mean()),
        "delta": {**asdict(delta), "tau": delta.tau},
        "failures": {str(tau): asdict(failures(logp_CV, true_CV, tau)) for tau in TAUS},
        "optimality_gap": {
            "relative_median": float(gap.relative_C.median()),
            "residual_median": float(gap.residual_C.median()),
        },
        "rules": {str(mass): rules(logp_CV, true_CV, matrix_VD, mass, args) for mass in args.masses},
    }


def safe(logp_CV: Tensor, true_CV: Tensor, matrix_VD: Tensor) -> dict:
    """At the τ that δ makes safe, a threshold keeps nothing impossible; nor does the test, if Wᵀp̂ = Wᵀp*."""
    if not len(logp_CV):
        return {"contexts": 0}
    tau = underestimation(logp_CV, true_CV).tau
    p_CV = logp_CV.double().exp()
    p_CV /= p_CV.sum(-1, keepdim=True)
    kept = {
        "threshold": p_CV > tau,
        "basis-aware": torch.from_numpy(BasisTest(matrix_VD).mask(p_CV.numpy(), tau)),
    }
    return {
        "contexts": len(logp_CV),
        "tau": tau,
        **{
            name: {
                "kept": int(kept_CV.sum()),
                "impossible": int((kept_CV & (true_CV == 0)).sum()),
                "mass_recall": float((true_CV * kept_CV).sum(-1).mean()),
            }
            for name, kept_CV in kept.items()
        },
    }


def rules(
    logp_CV: Tensor, true_CV: Tensor, matrix_VD: Tensor, mass: float, args: argparse.Namespace
) -> dict[str, dict]:
    """Every rule at the setting that keeps the same mass; and what it keeps that ε does not, and drops that ε keeps."""
    p_CV, possible_CV = logp_CV.exp(), true_CV > 0
    found: dict[str, dict] = {}
    kept = {}
    for name, dial in dials(logp_CV, matrix_VD, args.ranks).items():
        setting, kept[name] = at_mass(dial, p_CV, mass, close=CLOSE)
        more_CV, fewer_CV = kept[name] & ~kept["epsilon"], kept["epsilon"] & ~kept[name]
        found[name] = {"setting": setting, **asdict(support(kept[name], p_CV, true_CV))}
        for what, them_CV in (("more", more_CV), ("fewer", fewer_CV)):
            found[name][what] = int(them_CV.sum())
            found[name][f"{what}_possible"] = int((them_CV & possible_CV).sum())
    return found


def show(found: dict[str, dict], console: Console) -> None:
    models = Table(title="models")
    for name in (
        *("width", "hidden", "CE", "H", "δ", "median δ", "τ(δ)", "gap"),
        *(f"p̂ > {t}, p* = 0" for t in TAUS),
        *("threshold at τ(δ)", "basis-aware at τ(δ)"),
    ):
        models.add_column(name, justify="right", no_wrap=True)
    table = Table(title="rules at equal mass")
    for name in (
        *("width", "hidden", "mass", "rule", "setting", "precision", "recall", "by mass", "recall by mass"),
        *("kept", "beyond ε: possible", "only ε: possible"),
    ):
        table.add_column(name, justify="left" if name == "rule" else "right", no_wrap=True)
    for width, kinds in found.items():
        for kind, row in kinds.items():
            models.add_row(
                *(width, kind),
                f"{row['cross_entropy']:.3f}",
                f"{row['entropy']:.3f}",
                f"{row['delta']['delta']:.2f}",
                f"{next(it for q, it in row['delta']['quantiles'].items() if float(q) == 0.5):.2f}",
                f"{row['delta']['tau']:.3f}",
                f"{row['optimality_gap']['relative_median']:.3f}",
                *(f"{each['impossible']}/{each['kept']}" for each in row["failures"].values()),
                *(
                    f"{it['impossible']}/{it['kept']}, recall {it['mass_recall']:.3f}"
                    for it in (
                        row["safe"][rule] for rule in ("threshold", "basis-aware") if rule in row["safe"]
                    )
                ),
            )
            for mass, by_rule in row["rules"].items():
                for name, each in by_rule.items():
                    numbers = (each[key] for key in ("precision", "recall", "mass_precision", "mass_recall"))
                    table.add_row(
                        *(width, kind, mass, name, f"{each['setting']:.3g}"),
                        *(f"{number:.3f}" for number in numbers),
                        f"{each['size']:.1f}",
                        f"{each['more_possible']} of {each['more']}",
                        f"{each['fewer_possible']} of {each['fewer']}",
                    )
    console.print(models, table)


def draw(found: dict[str, dict], path: Path) -> None:
    masses = list(next(iter(found.values()))["trained"]["rules"])
    with canvas(path, 3.2 * len(masses), 5.6) as figure:
        panels = figure.subplots(2, len(masses), sharex=True, sharey=True, squeeze=False)
        for kind, row in zip(("trained", "optimal"), panels, strict=True):
            for panel, mass in zip(row, masses, strict=True):
                widths = {
                    int(width): {
                        "basis-aware, full rank" if name == f"basis-aware, rank {width}" else name: it
                        for name, it in kinds[kind]["rules"][mass].items()
                    }
                    for width, kinds in found.items()
                }
                for name in dict.fromkeys(name for by_rule in widths.values() for name in by_rule):
                    points = [(w, it[name]["mass_precision"]) for w, it in widths.items() if name in it]
                    panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
                panel.set_xscale("log", base=2)
                panel.set_xticks(list(widths), [str(width) for width in widths])
                panel.set_title(f"{kind}, {float(mass):.0%} of the mass kept", fontsize=9)
            row[0].set_ylabel("possible, of what is drawn")
        for panel in panels[-1]:
            panel.set_xlabel("width of the softmax")
        panels[0, -1].legend(fontsize=7, frameon=False)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--branching", type=int, default=24)
    parser.add_argument("--widths", type=int, nargs="+", default=[4, 8, 16, 32])
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 32])
    parser.add_argument("--masses", type=float, nargs="+", default=[0.8, 0.95])
    parser.add_argument("--sentences", type=int, default=50_000)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--contexts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()

    torch.set_num_threads(1)
    language = ZipfMarkov(word_count=args.words, branching=args.branching, seed=args.seed)
    found: dict[str, dict] = {}
    if args.json is not None and args.json.exists():
        found = json.loads(args.json.read_text(encoding="utf-8"))
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("updates", total=len(args.widths) * args.updates)
        for width in args.widths:
            if str(width) in found:
                progress.advance(bar, args.updates)
                continue
            settings = (args.sentences, args.updates, args.batch, args.seed)
            model = train_narrow(language, width, *settings, lambda: progress.advance(bar))
            found[str(width)] = examine(language, model, args)
            if args.json:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    show(found, Console(width=170))
    if args.picture:
        draw(found, args.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
