"""Claim: one loss makes attention focus on few positions, another makes it attend to near positions.

    L_focus = mean H(α),   L_near = mean min(L_max, Σ α (t₁ − t₂)²) below the last layer

McAllester's problems, 1(b) and 1(c) (papers.bib: mcallester2020problems).
benchmarks/attention.py measures the same on a treebank's sentences.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import torch

from unspool.data.known_languages import Agreement
from unspool.lab.claim import Claim, Numbers, Progress, problems, tracked
from unspool.lab.small_models import TRANSFORMER_LM, excess_loss, language, train_model
from unspool.objectives.attention_losses import distance, entropy
from unspool.objectives.dependency_heads import pad_rows
from unspool.plots.seeds import bars, chart

RUNS: dict[str, list[dict[str, Any]]] = {
    "plain": [],
    "focus": [{"kind": "attention_focus", "weight": 0.3}],
    "near": [{"kind": "attention_near", "weight": 0.05}],
}
CAP = 64.0


@torch.no_grad()
def looks(model: Any, rows: list[tuple[int, ...]]) -> tuple[float, float]:
    """Return mean entropy over all layers, and mean squared distance over all but the last."""
    batch = pad_rows(rows)
    _, (stack,) = model.read_attention(batch)
    real_NT = torch.arange(batch.inputs_NT.shape[1]) < batch.lengths_N[:, None]
    real = real_NT[:, None].expand_as(entropy(stack.layers[0]))
    spread = torch.stack([entropy(it)[real].mean() for it in stack.layers]).mean()
    far = torch.stack([distance(it)[real].mean() for it in stack.layers[:-1]]).mean()
    return float(spread), float(far)


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train the same model without and with each loss."""
    truth, rng = Agreement(filler=0.8), Random(seed)
    rows = [(truth.bos, *truth.sample(rng)) for _ in range(100)]
    found: dict[str, float] = {}
    for name, auxiliary in tracked(RUNS.items(), progress):
        data = language("agreement", seed, 3000, filler=0.8)
        shape = {**TRANSFORMER_LM, "layers": 3}
        model = train_model(data, shape, 20 if quick else 250, seed, auxiliary=auxiliary)
        spread, far = looks(model, rows)
        found |= {f"{name}: entropy": spread, f"{name}: squared distance": far}
        found[f"{name}: nats a token above the truth"] = excess_loss(
            model, truth, 40 if quick else 200, 900 + seed
        )
    # Rows that look everywhere alike: by hand ln T, and no more than the cap however long the text is.
    alike = [torch.full((1, 1, size, size), 1 / size) for size in (8, 64, 512)]
    found["entropy of a uniform row, T = 64, less ln T"] = float(entropy(alike[1]).mean()) - math.log(64)
    found["largest capped distance of uniform rows, T = 8 to 512"] = max(
        float(distance(it).clamp(max=CAP).max()) for it in alike
    )
    found["largest distance of uniform rows, T = 512, without the cap"] = float(distance(alike[2]).max())
    return found


CLAIM = Claim(
    name="attention_losses",
    statement="A loss on the entropy of attention makes heads focus, and a capped loss on squared distances "
    "makes them attend to near positions, for any window length.",
    source=problems("problem 1(b) and 1(c)"),
    measured="Transformers of three layers learn an artificial language with distant agreement, alone and "
    "with either loss (weights 0.3 and 0.05): mean entropy and mean squared distance of attention on new "
    "sentences.",
    criterion={
        "focus halves the entropy": lambda n: n["focus: entropy"] <= 0.5 * n["plain: entropy"],
        "near halves the squared distance": lambda n: (
            n["near: squared distance"] <= 0.5 * n["plain: squared distance"]
        ),
        "a uniform row costs ln T in focus (1e-4), and the near loss never exceeds its cap": lambda n: (
            abs(n["entropy of a uniform row, T = 64, less ln T"]) <= 1e-4
            and n["largest capped distance of uniform rows, T = 8 to 512"] <= CAP
        ),
    },
    measure=measure,
    draw=chart(
        bars({f"{name}: entropy": name for name in RUNS}, "mean entropy of attention, nats"),
        bars(
            {f"{name}: squared distance": name for name in RUNS},
            "mean squared distance, without the last layer",
        ),
        sharey=True,
    ),
)
