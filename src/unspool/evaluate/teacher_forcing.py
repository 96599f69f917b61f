"""Teacher forcing: what a model says of every token of a text, given the true tokens before it.

    log p(· | y_{s} … y_{t−1}),   t − s < context

A text longer than the context is read in windows that overlap: each scores only the tokens that the window
before it has not, so that every token but the first is scored exactly once and has at least
context − stride tokens before it (fewer only at the beginning of the text).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.protocols import Rewindable, StepModel

COLUMNS = 32
"""Tokens of every row that are read at once: log-probabilities of a large vocabulary are many megabytes."""


@dataclass(frozen=True)
class Window:
    """A stretch of a text."""

    text: int
    """Which text it is of."""
    tokens: tuple[int, ...]
    first: int
    """The place of the first token that is scored; those before it are only read."""


@dataclass(frozen=True, eq=False)
class Seen:
    """The model's distributions at M places, and the tokens that stand there."""

    logp_MV: Tensor
    token_M: Tensor
    text_M: Tensor
    """Which text each is of."""


def encode(model: StepModel, texts: Sequence[str | Sequence[int]]) -> list[tuple[int, ...]]:
    """Texts as token ids; refuses what leaves nothing to score."""
    if isinstance(texts, str) or not texts:
        raise ValueError(f"texts is {texts!r}, but must be a list of one text or more.")
    rows = [_ids(model, text, place) for place, text in enumerate(texts)]
    for place, row in enumerate(rows):
        if len(row) < 2:
            raise ValueError(
                f"text {place} has {len(row)} tokens, and at least 2 are needed: the first has nothing "
                "before it. Leave it out, or join it to another."
            )
    return rows


def windows(
    rows: Sequence[Sequence[int]], context: int | None = None, stride: int | None = None
) -> list[Window]:
    """Every row as windows of at most `context` tokens, each scoring at most `stride` after the first."""
    if context is not None and context < 2:
        raise ValueError(f"context is {context}, but must be 2 or more: one token read, one token scored.")
    if stride is not None and (stride < 1 or context is None or stride >= context):
        raise ValueError(
            f"stride is {stride} and context {context}, but 1 ≤ stride < context is needed: "
            "every token scored needs one before it."
        )
    found = []
    for place, row in enumerate(rows):
        size = context or len(row)
        step = stride or max(size // 2, 1)
        found.append(Window(place, tuple(row[:size]), 1))
        for scored in range(size, len(row), step):
            end = min(scored + step, len(row))
            begin = max(end - size, 0)
            found.append(Window(place, tuple(row[begin:end]), scored - begin))
    return found


def fitting(model: StepModel, context: int | None, most: int = 1024) -> int:
    """The size of a window: what was asked for, or as much as the model takes and memory likes."""
    limit = model.context
    if context is None:
        return most if limit is None else min(most, limit)
    if limit is not None and context > limit:
        raise ValueError(f"context is {context}, and the model reads at most {limit} tokens. Choose {limit}.")
    return context


@torch.inference_mode()
def read(model: StepModel, parts: Sequence[Window], *, batch: int = 8) -> Iterator[Seen]:
    """Every token that the windows score, some at a time; windows of like lengths go together."""
    order = sorted(range(len(parts)), key=lambda i: (len(parts[i].tokens), parts[i].first), reverse=True)
    for start in range(0, len(parts), batch):
        yield from _read([parts[i] for i in order[start : start + batch]], model)


def _read(rows: Sequence[Window], model: StepModel) -> Iterator[Seen]:
    step, state = model.start([row.tokens[: row.first] for row in rows])
    device = step.logp_NV.device
    longest = max(len(row.tokens) - row.first for row in rows)
    # Flush left: what is appended after the end of a shorter row cannot change what came before.
    after_NT = torch.zeros(len(rows), longest, dtype=torch.long, device=device)
    there_NT = torch.zeros(len(rows), longest, dtype=torch.bool, device=device)
    for n, row in enumerate(rows):
        scored = row.tokens[row.first :]
        after_NT[n, : len(scored)] = torch.tensor(scored, device=device)
        there_NT[n, : len(scored)] = True
    text_N1 = torch.tensor([row.text for row in rows], device=device)[:, None]
    done, logp_NTV = 0, step.logp_NV[:, None]
    while True:
        width = logp_NTV.shape[1]
        here_NT = there_NT[:, done : done + width]
        token_NT = after_NT[:, done : done + width]
        yield Seen(logp_NTV[here_NT], token_NT[here_NT], text_N1.expand_as(token_NT)[here_NT])
        if done + width >= longest:
            return
        # Column t of what follows is said after token t has been read.
        logp_NTV, state = _extend(model, state, after_NT[:, done + width - 1 : longest - 1][:, :COLUMNS])
        done += width


def _extend(model: StepModel, state: Any, tokens_NT: Tensor) -> tuple[Tensor, Any]:
    if isinstance(model, Rewindable):
        return model.extend(state, tokens_NT)
    said = []
    for tokens_N in tokens_NT.unbind(1):
        step, state = model.step(state, tokens_N)
        said.append(step.logp_NV)
    return torch.stack(said, dim=1), state


def _ids(model: StepModel, text: str | Sequence[int], place: int) -> tuple[int, ...]:
    if not isinstance(text, str):
        return tuple(text)
    if model.text is None:
        raise ValueError(
            f"text {place} is a string, and the model has no tokenizer. Give token ids, or load the model "
            "from a folder with its tokenizer."
        )
    return tuple(model.text.encode(text))
