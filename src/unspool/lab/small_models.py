"""The small models that claims train on the spot: one recipe, which every claim changes where it must."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import torch

from unspool.data import prepare
from unspool.data.languages import KnownLanguage
from unspool.evaluate.teacher_forcing import read, windows
from unspool.training import training
from unspool.training.run import as_recipe, start

Table = Mapping[str, Any]

RNN_LM: Table = {"kind": "rnn_lm", "cell": "gru", "width": 32}
TRANSFORMER_LM: Table = {"kind": "transformer_lm", "width": 32, "heads": 4, "layers": 2, "inner_width": 64}


def language(kind: str, seed: int, sentences: int = 3000, /, **settings: Any) -> dict[str, Any]:
    """Sentences of a language whose truth is known: [data] of a recipe."""
    return {
        "kind": "language",
        "language": {"kind": kind, **settings},
        **{"train": sentences, "valid": 0, "seed": seed},
    }


def task(kind: str, seed: int, pairs: int = 3000, /, **settings: Any) -> dict[str, Any]:
    """Pairs of a tiny task, of whose sources a tenth is never learnt from: [data] of a recipe."""
    return {
        "kind": "task",
        "task": {"kind": kind, **settings},
        **{"train": pairs, "valid": 50, "seed": seed},
    }


def recipe(
    data: Table, model: Table, updates: int, seed: int, *, lr: float = 5e-3, **others: Any
) -> dict[str, Any]:
    """One model from one seed. `others` are tables that take the place of these, but [train] is added to."""
    return {
        "seed": seed,
        "data": dict(data),
        **({"text": {"kind": "words"}} if data["kind"] == "task" else {}),
        "batches": {"kind": "bucketed", "tokens": 512},
        "model": dict(model),
        "schedule": {"kind": "cosine", "warmup": max(1, updates // 20)},
        **{key: value for key, value in others.items() if key != "train"},
        "train": {
            **{"updates": updates, "lr": lr, "threads": 1, "final": "last"},
            **{"validate_every": 10**6, "checkpoint_every": 10**6},
            **others.get("train", {}),
        },
    }


def learnt(
    data: Table, model: Table, updates: int, seed: int, *, told: list[float] | None = None, **others: Any
) -> Any:
    """The model that the recipe gives, ready to be asked; nothing is written to the disk.

    `told` is filled with −log p of a token in every update.
    """
    made = as_recipe(recipe(data, model, updates, seed, **others), (), trust_code=True)
    run = start(made, prepare(made.data, made.text, made.batches, made.seed))
    for done in training(run):
        if told is not None:
            told.append(done.nll)
    return run.model.eval()


@torch.inference_mode()
def excess(model: Any, truth: KnownLanguage[Any], sentences: int, seed: int) -> float:
    """Nats a token that the model is worse than the truth, on sentences of a seed of their own."""
    dice = Random(seed)
    said = [truth.sample(dice) for _ in range(sentences)]
    best = -sum(truth.log_prob(row) for row in said)
    rows = [(truth.bos, *row, truth.eos) for row in said]
    found = -sum(
        float(seen.logp_MV.gather(1, seen.token_M[:, None]).double().sum())
        for seen in read(model, windows(rows), batch=32)
    )
    return (found - best) / sum(len(row) - 1 for row in rows)
