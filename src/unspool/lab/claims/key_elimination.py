"""Claim: one matrix per head can replace the query and key matrices without change.

    W̃[k, j₁, j₂] = (1/√I) Σ_i W^Q[k, i, j₁] W^K[k, i, j₂],   the 2·I·J parameters of a head become J²

McAllester's problems, 5 (papers.bib: mcallester2020problems).
"""

from __future__ import annotations

from typing import Any

import torch

from unspool.lab.claim import Claim, Numbers, Progress, problems
from unspool.lab.small_models import TRANSFORMER_LM, language, train_model
from unspool.models.key_elimination import costs, with_keys, without_keys
from unspool.objectives.dependency_heads import pad_rows
from unspool.plots.seeds import chart, lines

WIDTH, HEADS = 32, 4


def looks(model: Any, batch: Any) -> list[Any]:
    """Return the attention of every layer."""
    _, (stack,) = model.read_attention(batch)
    return list(stack.layers)


@torch.no_grad()
def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Convert a trained Transformer, and cut it to lower ranks."""
    model = {**TRANSFORMER_LM, "width": WIDTH, "heads": HEADS, "positions": "sinusoidal"}
    with torch.enable_grad():
        plain = train_model(language("agreement", seed), model, 40 if quick else 300, seed)
    progress(0.8)
    rows = torch.randint(4, plain.vocab_size, (16, 24))
    batch = pad_rows([tuple(row.tolist()) for row in rows])
    keyless = without_keys(plain)
    change = max(
        float((one - other).abs().max())
        for one, other in zip(looks(plain, batch), looks(keyless, batch), strict=True)
    )
    logp = plain(rows)
    ranks = [8, 6, 4, 2, 1]
    errors = [float((with_keys(keyless, rank)(rows) - logp).abs().mean()) for rank in ranks]
    both = [costs(WIDTH, width, 1) for width in (4, 8, 16, 24)]
    return {
        "largest change of an attention weight": change,
        "largest change of log p": float((keyless(rows) - logp).abs().max()),
        "largest change of log p, back at rank I": float((with_keys(keyless)(rows) - logp).abs().max()),
        "mean change of log p, back at rank I / 2": errors[2],
        "parameters of a head, I = J/2: queries and keys": both[2]["query_key"].parameters,
        "parameters of a head: W̃": both[2]["keyless"].parameters,
        "rank": [float(rank) for rank in ranks],
        "error": errors,
        "head width": [4.0, 8.0, 16.0, 24.0],
        "two matrices": [float(it["query_key"].parameters) for it in both],
        "one matrix": [float(it["keyless"].parameters) for it in both],
    }


CLAIM = Claim(
    name="key_elimination",
    statement="A single matrix can replace the query and key matrices of a head without loss; it "
    "has as many parameters if I = J/2.",
    source=problems("problem 5", "eckart1936approximation"),
    measured="A trained Transformer (width J = 32, 4 heads of width I = 8, sinusoidal positions) is "
    "converted to one matrix W̃ per head; attention weights and log-probabilities are compared on random rows "
    "of 24 words; then W̃ is cut to lower ranks.",
    criterion={
        "no attention weight changes by more than 1e-5": lambda n: (
            n["largest change of an attention weight"] <= 1e-5
        ),
        "no log p changes by more than 1e-4": lambda n: n["largest change of log p"] <= 1e-4,
        "at rank I it goes back to queries and keys as exactly; at I / 2 it does not (mean change above "
        "1e-3)": lambda n: (
            n["largest change of log p, back at rank I"] <= 1e-4
            and n["mean change of log p, back at rank I / 2"] > 1e-3
        ),
        "2·I·J = J² at I = J/2": lambda n: (
            n["parameters of a head, I = J/2: queries and keys"] == n["parameters of a head: W̃"]
        ),
    },
    measure=measure,
    draw=chart(
        lines(
            "rank",
            {"error": "back to queries and keys"},
            f"rank that is kept (I = {WIDTH // HEADS})",
            "mean change of log p",
        ),
        lines(
            "head width",
            {"two matrices": "2·I·J", "one matrix": "J²"},
            f"I (J = {WIDTH})",
            "parameters of a head",
        ),
    ),
)
