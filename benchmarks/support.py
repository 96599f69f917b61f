"""Which truncation keeps what is truly possible? Small models of a language whose truth is known, at several widths.

    python benchmarks/support.py --json out/support.json --picture out/support.svg

The language is Markov of order 2 with few possible words in every context. A model reads the last two words (two
embeddings and one hidden layer, the same for all) and ends in a softmax over `width` numbers: the narrower, the more
the softmax bottleneck forces it to give probability to words that cannot come. Every rule is then set to keep the same
mass of the model's probability, and compared by exact support precision and recall; the model itself by its empirical
δ, by how often Corollary 1 fails at a τ, and by its distance from Theorem 2's optimum (Finlayson et al. 2024).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from random import Random

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

import unspool as us
from unspool.basis import BasisTest
from unspool.data.languages import ZipfMarkov
from unspool.diagnose.drawing import canvas
from unspool.diagnose.overestimation import failures, optimality_gap, underestimation
from unspool.evaluate.support import Dial, compare

TAUS = (0.01, 0.1, 0.5)
CLOSE = 2e-3
"""The exact test takes long: the mass it keeps is matched as closely as this."""


class Trigram(nn.Module):
    """Bengio et al. 2003: log p(· | two words) = log_softmax(W tanh(A [e₁; e₂])), W of `width` columns."""

    def __init__(self, vocabulary: int, width: int, body: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, body)
        self.layers = nn.Sequential(nn.Linear(2 * body, 4 * body), nn.Tanh(), nn.Linear(4 * body, width))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, contexts_N2: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(contexts_N2).flatten(1))).log_softmax(-1)


def examples(language: ZipfMarkov, sentences: int, seed: int) -> tuple[Tensor, Tensor]:
    """Every place of some sentences: the two words before it, and what comes."""
    dice, contexts, nexts = Random(seed), [], []
    for _ in range(sentences):
        row = [*language.start(), *language.sample(dice), language.eos]
        contexts += [row[t - 2 : t] for t in range(2, len(row))]
        nexts += row[2:]
    return torch.tensor(contexts), torch.tensor(nexts)


def train(language: ZipfMarkov, width: int, args: argparse.Namespace, tick) -> Trigram:
    torch.manual_seed(args.seed)
    model = Trigram(language.vocab_size, width)
    context_N2, next_N = examples(language, args.sentences, args.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.updates)
    for _ in range(args.updates):
        rows_B = torch.randint(len(next_N), (args.batch,))
        loss = nn.functional.nll_loss(model(context_N2[rows_B]), next_N[rows_B])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        tick()
    return model.eval()


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


def examine(language: ZipfMarkov, model: Trigram, args: argparse.Namespace) -> dict:
    context_N2, _ = examples(language, args.contexts, args.seed + 1)
    rows_C = torch.randperm(len(context_N2), generator=torch.Generator().manual_seed(args.seed))[
        : args.contexts
    ]
    context_C2 = context_N2[rows_C]
    true_CV = torch.from_numpy(language.rows(context_C2.numpy()))
    with torch.no_grad():
        logp_CV = model(context_C2)
    matrix_VD = model.head.weight.detach()
    delta = underestimation(logp_CV, true_CV)
    gap = optimality_gap(logp_CV, true_CV, matrix_VD)
    p_CV = logp_CV.exp()
    return {
        "cross_entropy": -float((true_CV * logp_CV).sum(-1).mean()),
        "entropy": -float(torch.special.xlogy(true_CV, true_CV).sum(-1).mean()),
        "delta": {**asdict(delta), "tau": delta.tau},
        "failures": {tau: asdict(failures(logp_CV, true_CV, tau)) for tau in TAUS},
        "optimality_gap": {
            "relative_median": float(gap.relative_C.median()),
            "residual_median": float(gap.residual_C.median()),
        },
        "rules": {
            mass: {
                name: {"setting": each.setting, **asdict(each.support)}
                for name, each in compare(
                    dials(logp_CV, matrix_VD, args.ranks), p_CV, true_CV, mass, close=CLOSE
                ).items()
            }
            for mass in args.masses
        },
    }


def show(found: dict[int, dict], console: Console) -> None:
    models = Table(title="models")
    for name in (
        *("width", "CE", "H", "δ", "median δ", "τ(δ)", "gap"),
        *(f"p̂ > {t}, p* = 0" for t in TAUS),
    ):
        models.add_column(name, justify="right", no_wrap=True)
    rules = Table(title="rules at equal mass")
    for name in (
        "width",
        "mass",
        "rule",
        "setting",
        "precision",
        "recall",
        "by mass",
        "recall by mass",
        "kept",
    ):
        rules.add_column(name, justify="left" if name == "rule" else "right", no_wrap=True)
    for width, row in found.items():
        models.add_row(
            str(width),
            f"{row['cross_entropy']:.3f}",
            f"{row['entropy']:.3f}",
            f"{row['delta']['delta']:.2f}",
            f"{row['delta']['quantiles'][0.5]:.2f}",
            f"{row['delta']['tau']:.3f}",
            f"{row['optimality_gap']['relative_median']:.3f}",
            *(f"{each['impossible']}/{each['kept']}" for each in row["failures"].values()),
        )
        for mass, by_rule in row["rules"].items():
            for name, each in by_rule.items():
                numbers = (each[key] for key in ("precision", "recall", "mass_precision", "mass_recall"))
                rules.add_row(
                    *(str(width), f"{mass:g}", name, f"{each['setting']:.3g}"),
                    *(f"{number:.3f}" for number in numbers),
                    f"{each['size']:.1f}",
                )
    console.print(models, rules)


def draw(found: dict[int, dict], masses: list[float], path: Path) -> None:
    with canvas(path, 3.2 * len(masses), 3.2) as figure:
        panels = figure.subplots(1, len(masses), sharey=True, squeeze=False)[0]
        for panel, mass in zip(panels, masses, strict=True):
            names = dict.fromkeys(name for row in found.values() for name in row["rules"][mass])
            for name in names:
                points = [
                    (w, row["rules"][mass][name]["mass_precision"])
                    for w, row in found.items()
                    if name in row["rules"][mass]
                ]
                panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
            panel.set_xscale("log", base=2)
            panel.set_title(f"{mass:.0%} of the mass kept", fontsize=9)
            panel.set_xlabel("width of the softmax")
        panels[0].set_ylabel("possible, of what is drawn")
        panels[-1].legend(fontsize=7, frameon=False)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--branching", type=int, default=24)
    parser.add_argument("--widths", type=int, nargs="+", default=[4, 8, 16, 32])
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 16, 32])
    parser.add_argument("--masses", type=float, nargs="+", default=[0.8, 0.9, 0.95])
    parser.add_argument("--sentences", type=int, default=50_000)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--contexts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()

    torch.set_num_threads(1)
    language = ZipfMarkov(word_count=args.words, branching=args.branching, seed=args.seed)
    found = {}
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("updates", total=len(args.widths) * args.updates)
        for width in args.widths:
            model = train(language, width, args, lambda: progress.advance(bar))
            found[width] = examine(language, model, args)
            if args.json:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(found, indent=1))
    show(found, Console(width=130))
    if args.picture:
        draw(found, args.masses, args.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
