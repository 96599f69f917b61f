"""Claims about networks: both directions, residual connections, and the place of layer normalisation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from unspool.lab.claim import LECTURE, Numbers, Progress, claim, points, tracked
from unspool.lab.small_models import TRANSFORMER_LM, language, train_model
from unspool.models.labelling import predict
from unspool.plots.seeds import bars, chart, lines
from unspool.training import Diverged

# ---- bidirectional_context

NAMES = ("Forbes", "Ford", "Morgan", "Carter", "Bishop", "Mason", "Porter", "Parker", "Cooper", "Turner")
PLACES = ("building", "tower", "bridge", "station", "square", "street")
PEOPLE = ("family", "brothers", "children", "sisters", "couple", "cousins")
REST = ("is near the river", "was seen today", "has a long history", "is known to all", "was here before")
DIRECTIONS = {"both directions": True, "left to right": False}


def sentence(rng: Random) -> tuple[str, str]:
    """Return words and tags; the word after a name decides between place and person."""
    place = rng.random() < 0.5
    rest = rng.choice(REST)
    words = f"The {rng.choice(NAMES)} {rng.choice(PLACES if place else PEOPLE)} {rest}"
    return words, f"O {'PLACE' if place else 'PERSON'} O{' O' * len(rest.split())}"


def share_tagged(tag: Callable[[list[str]], Any], rows: Sequence[tuple[str, str]]) -> float:
    tagged = tag([words for words, _ in rows])
    right = [tags[1].label == truth.split()[1] for tags, (_, truth) in zip(tagged, rows, strict=True)]
    return float(sum(right) / len(right))


def share_changed(tag: Callable[[list[str]], Any]) -> float:
    """Return the share of names whose tag changes from "building" to "family"."""
    pairs = [[f"The {name} building was seen today", f"The {name} family was seen today"] for name in NAMES]
    labels = [[tags[1].label for tags in tag(pair)] for pair in pairs]
    return labels.count(["PLACE", "PERSON"]) / len(pairs)


@claim(
    "A word's label can depend on what follows it: an encoder that reads both ways finds it, one that reads "
    "from left to right cannot.",
    source=f"{LECTURE}, Bi-directional RNN encoder",
    measured="GRU taggers (width 16) learn whether a name is a place or a person from sentences in which "
    "only the next word tells (The Forbes building …, The Forbes family …): the share of names tagged right "
    "in 400 new sentences, and of ten names how many change their tag with that word.",
    primary="share of names tagged right, both directions minus left to right",
    matters=0.25,
    assumed=(0.45, 0.05),
    secondary=(
        *(f"{name}: names tagged right" for name in DIRECTIONS),
        *(f"{name}: names that the next word turns" for name in DIRECTIONS),
    ),
    draw=chart(
        bars(
            [*DIRECTIONS],
            "names tagged right (dotted: chance)",
            "{}: names tagged right",
            limit=0.5,
            xlim=(0, 1.02),
        )
    ),
)
def bidirectional_context(seed: int, quick: bool, progress: Progress) -> Numbers:
    """h_t = [→h_t ; ←h_t]   against   →h_t:   "The [Forbes] building", "The [Forbes] family".

    Schuster & Paliwal 1997 (papers.bib: schuster1997bidirectional).
    """
    rng = Random(seed)
    rows = [sentence(rng) for _ in range(400 if quick else 1500)]
    numbers: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "names.tsv"
        file.write_text("".join(f"{words}\t{tags}\n" for words, tags in rows), encoding="utf-8")
        data = {"kind": "tagged", "train": str(file), "valid_lines": 50}
        for name, both in tracked(DIRECTIONS.items(), progress):
            shape = {"kind": "tagger", "encoder": {"kind": "rnn", "width": 16, "bidirectional": both}}
            model = train_model(data, shape, 25 if quick else 150, seed, lr=1e-2, tokenizer={"kind": "words"})
            new = [sentence(rng) for _ in range(400)]
            numbers[f"{name}: names tagged right"] = share_tagged(partial(predict, model), new)
            numbers[f"{name}: names that the next word turns"] = share_changed(partial(predict, model))
    two_ways, one_way = (numbers[f"{name}: names tagged right"] for name in DIRECTIONS)
    return {"effect": two_ways - one_way, **numbers}


# ---- residual_identity

DEPTHS = (1, 2, 8, 32)
WIDTH = 32


class Stack(nn.Module):
    """A stack of feed-forward blocks: two matrices with a ReLU in between."""

    def __init__(self, depth: int, residual: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)) for _ in range(depth)
        )
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x) if self.residual else layer(x)
        return x


def identity_error(depth: int, residual: bool, seed: int, updates: int) -> tuple[float, float]:
    """Return the error relative to a variance of 1, and the first gradient in the lowest layer."""
    torch.manual_seed(seed)
    rng = torch.Generator().manual_seed(seed)
    model = Stack(depth, residual)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    first = 0.0
    for update in range(updates):
        x_ND = torch.randn(64, WIDTH, generator=rng)
        loss = (model(x_ND) - x_ND).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if update == 0:
            first = float(next(model.parameters()).grad.norm())  # type: ignore[union-attr]
        optimizer.step()
    x_ND = torch.randn(512, WIDTH, generator=rng)
    with torch.no_grad():
        return float((model(x_ND) - x_ND).square().mean()), first


@claim(
    "Deep networks are bad at learning the identity; residual connections make it easy.",
    source=f"{LECTURE}, Residual connection",
    measured="Stacks of 1 to 32 ReLU layers of width 32 learn for 400 updates (Adam) to copy their "
    "input, with and without residual connections: mean squared error on new inputs of variance 1, and the "
    "first gradient in the lowest layer.",
    primary="mean squared error of 32 layers, without minus with residual connections",
    matters=0.25,
    assumed=(0.7, 0.2),
    secondary=("plain, 2 layers: error", "plain, 32 layers: error", "residual, 32 layers: error"),
    draw=chart(
        lines(
            "depth",
            {"plain": "h ← f(h)", "residual": "h ← h + f(h)"},
            "layers",
            "mean squared error (1: nothing learnt)",
            limit=1.0,
            ticks=DEPTHS,
            xscale="log",
            yscale="log",
        )
    ),
)
def residual_identity(seed: int, quick: bool, progress: Progress) -> Numbers:
    """h ← f(h)   against   h ← h + f(h):   for the identity, f must be the identity, or 0.

    He et al. 2015; Vaswani et al. 2017 (papers.bib: vaswani2017attention).
    """
    errors: dict[str, list[float]] = {"plain": [], "residual": []}
    gradients: dict[str, list[float]] = {"plain": [], "residual": []}
    for depth in tracked(DEPTHS, progress):
        for name in errors:
            error, first = identity_error(depth, name == "residual", seed, 20 if quick else 400)
            errors[name].append(error)
            gradients[name].append(first)
    return {
        "effect": errors["plain"][-1] - errors["residual"][-1],
        **points("{}, {} layers: error", DEPTHS, errors),
        **{f"{name}, 32 layers: first gradient at the bottom": it[-1] for name, it in gradients.items()},
        "depth": [*DEPTHS],
        **errors,
        **{f"{name} gradient": it for name, it in gradients.items()},
    }


# ---- norm_place

LAYERS, RATE = 10, 5e-3
RUNS = {
    "pre-LN, no warm-up": ("pre", 0),
    "pre-LN, warm-up": ("pre", 40),
    "post-LN, no warm-up": ("post", 0),
    "post-LN, warm-up": ("post", 40),
}


def loss_curve(place: str, warmup: int, seed: int, updates: int, layers: int) -> list[float]:
    """Return the loss of every update; a diverged run repeats its last loss, or 20 without one."""
    losses: list[float] = []
    try:
        train_model(
            language("zipf_markov", seed, word_count=100, order=1, seed=seed),
            {**TRANSFORMER_LM, "layers": layers, "norm": "layer", "norm_place": place},
            updates,
            seed,
            lr=RATE,
            losses=losses,
            schedule={"kind": "constant", "warmup": warmup},
            batches={"kind": "bucketed", "tokens": 256},
        )
    except Diverged:
        losses += [losses[-1] if losses else 20.0] * (updates - len(losses))
    return losses


@claim(
    "With post-LN a deep Transformer needs a learning-rate warm-up, with pre-LN it trains without.",
    source=f"{LECTURE}, Why do we need layer normalization; pre-layer normalization (Xiong et al. 2020)",
    measured=f"Transformers of {LAYERS} layers (width 32) learn an artificial language for 96 updates at a "
    f"rate of {RATE:g}, with LayerNorm before the branches or behind the sums, with a warm-up of 40 updates "
    "or none. The mean loss of the last 12 updates.",
    primary="loss that a warm-up saves with post-LN minus loss that it saves with pre-LN, nats per token",
    matters=0.1,
    assumed=(0.4, 0.25),
    secondary=("post-LN minus pre-LN, no warm-up", "warm-up saves with post-LN", "warm-up saves with pre-LN"),
    draw=chart(lines("update", [*RUNS], "update", "−log p of a token")),
)
def norm_place(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Post-LN: x ← LN(x + f(x)).   Pre-LN: x ← x + f(LN(x)).   The same weights and batches.

    Xiong et al. 2020 (papers.bib: xiong2020layer); Ba et al. 2016 (papers.bib: ba2016layer).
    """
    updates, layers = (8, 3) if quick else (96, LAYERS)
    curves = {
        name: loss_curve(place, warmup, seed, updates, layers)
        for name, (place, warmup) in tracked(RUNS.items(), progress)
    }
    tail, step = max(1, updates // 8), max(1, updates // 40)
    ends = {name: sum(curve[-tail:]) / tail for name, curve in curves.items()}
    post, pre = (ends[f"{place}, no warm-up"] - ends[f"{place}, warm-up"] for place in ("post-LN", "pre-LN"))
    return {
        "effect": post - pre,
        "post-LN minus pre-LN, no warm-up": ends["post-LN, no warm-up"] - ends["pre-LN, no warm-up"],
        "warm-up saves with post-LN": post,
        "warm-up saves with pre-LN": pre,
        **{f"{name}: loss at the end": loss for name, loss in ends.items()},
        "update": [*range(0, updates, step)],
        **{name: curve[::step] for name, curve in curves.items()},
    }
