"""Teacher forcing: what a model says of every token of a text, given the true tokens before it.

    log p(· | y_{s} … y_{t−1}),   t − s < context

A text longer than the context is read in windows that overlap: each scores only the tokens that the window
before it has not, so that every token but the first is scored exactly once and has at least
context − stride tokens before it (fewer only at the beginning of the text).

An encoder–decoder reads a source and scores its target, the end of the text included.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf

import torch
from torch import Tensor

from unspool.decode.arguments import as_whole, ids, items, shown
from unspool.decode.combine.lockstep import check_model
from unspool.decode.prompts import check_ids, reading, tokens_left
from unspool.decode.score import read_on
from unspool.interfaces import StepModel

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
class ReadTokens:
    """The model's distributions at M places, and the tokens that stand there."""

    logp_MV: Tensor
    token_M: Tensor
    text_M: Tensor
    """Which text each is of."""


def forced(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    sources: Sequence[str | Sequence[int]] | None = None,
    *,
    context: int | None = None,
    stride: int | None = None,
    cut: bool = False,
) -> list[Window]:
    """Texts, strings or token ids, as windows that the model can read.

    The texts of an encoder–decoder are targets: each needs its source. Of a string, the end of the text is
    part of the target. One that is longer than the model's context is `cut`, or refused.
    """
    check_model(model)
    texts = _listed(texts)
    if not model.is_encoder_decoder:
        if sources is not None:
            raise ValueError("the model continues texts, and has no use for sources: leave them out.")
        return windows(encode(model, texts), fitting(model, context), stride)
    if sources is None:
        raise ValueError(
            "the model is an encoder–decoder, which says nothing of a text without its source: give "
            "sources=[…], one for each text."
        )
    if context is not None or stride is not None:
        raise ValueError("an encoder–decoder reads both sides whole: leave context and stride out.")
    if isinstance(sources, str) or len(sources) != len(texts):
        raise ValueError(f"sources is {sources!r:.60}, but must be a list with one source for each text.")
    pairs = [
        (token_ids(model, source, place, "source"), _target(model, text, place))
        for place, (source, text) in enumerate(zip(sources, texts, strict=True))
    ]
    return paired(model, pairs, cut=cut)


def encode(model: StepModel, texts: Sequence[str | Sequence[int]]) -> list[tuple[int, ...]]:
    """Texts as token ids; refuses what leaves nothing to score."""
    check_model(model)
    rows = [token_ids(model, text, place) for place, text in enumerate(_listed(texts))]
    for place, row in enumerate(rows):
        if len(row) < 2:
            raise ValueError(
                f"text {place} has {len(row)} tokens, and at least 2 are needed: the first has nothing "
                "before it. Leave it out, or join it to another."
            )
    return rows


def paired(
    model: StepModel, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], *, cut: bool = False
) -> list[Window]:
    """Sources and targets as windows: the model starts from the source, and scores the target.

    A target is without BOS. One that is longer than the model's context is cut, or refused.
    """
    found = []
    for place, (source, target) in enumerate(pairs):
        if not source or not target:
            raise ValueError(
                f"pair {place} has a source of {len(source)} and a target of {len(target)} tokens: both need "
                "one or more. Leave it out."
            )
        most = model.context
        for side, tokens in {"source": source, "target": target}.items():
            if most is not None and len(tokens) > most and not (cut and side == "target"):
                raise ValueError(
                    f"pair {place} has a {side} of {len(tokens)} tokens, and the model reads at most {most}. "
                    "Shorten it, or leave it out."
                )
        found.append(Window(place, (*source, *target[:most]), len(source)))
    return found


def token_pairs(
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of a prompt, or source, and what follows it, as tuples of token ids."""
    wanted = "pairs of a prompt and what follows it, each as token ids"
    found = []
    for pair in items("texts", texts, wanted):
        both = items("texts", pair, wanted)
        if len(both) != 2:
            raise ValueError(f"texts has {shown(pair)}, but must have {wanted}.")
        prompt, right = (ids("texts", it, empty=True) for it in both)
        found.append((prompt, right))
    if not found:
        raise ValueError(f"texts is empty, but must have {wanted}.")
    return found


def windows(
    rows: Sequence[Sequence[int]], context: int | None = None, stride: int | None = None
) -> list[Window]:
    """Every row as windows of at most `context` tokens, each scoring at most `stride` after the first."""
    if context is not None:
        context = as_whole("context", context, at_least=2, advice="One token is read, and one scored.")
    if stride is not None:
        stride = as_whole("stride", stride, at_least=1, advice="It is how many tokens a window scores.")
    if stride is not None and (context is None or stride >= context):
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
    free = tokens_left(model, [0])  # a negative prompt may take a part of the context
    limit = None if free is None else free + 1
    if limit is not None and limit < 2:
        raise ValueError("the prompt read beside the texts leaves no room in the model's context: shorten it")
    if context is None:
        return most if limit is None else min(most, limit)
    context = as_whole("context", context, at_least=2, advice="One token is read, and one scored.")
    if limit is not None and context > limit:
        raise ValueError(f"context is {context}, and the model reads at most {limit} tokens. Choose {limit}.")
    return context


@torch.inference_mode()
def read(model: StepModel, parts: Sequence[Window], *, batch: int = 8) -> Iterator[ReadTokens]:
    """Every token that the windows score, some at a time; windows that score equally many go together."""
    batch = as_whole("batch", batch, at_least=1, advice="It is how many texts are read side by side.")
    order = sorted(parts, key=lambda it: (len(it.tokens) - it.first, it.first), reverse=True)
    for start in range(0, len(order), batch):
        yield from _read(order[start : start + batch], model)


def _read(rows: Sequence[Window], model: StepModel) -> Iterator[ReadTokens]:
    """Rows side by side; one whose tokens are all scored leaves, so that none is read beyond its end."""
    step, state = model.start([row.tokens[: row.first] for row in rows])
    done, logp_NTV = 0, step.logp_NV[:, None]
    while True:
        width = logp_NTV.shape[1]
        token_NT = _columns(rows, done, width, logp_NTV.device)
        text_N1 = torch.tensor([row.text for row in rows], device=logp_NTV.device)[:, None]
        yield ReadTokens(logp_NTV.flatten(0, 1), token_NT.flatten(), text_N1.expand_as(token_NT).flatten())
        done += width
        left = [n for n, row in enumerate(rows) if len(row.tokens) - row.first > done]
        if not left:
            return
        if len(left) < len(rows):
            rows = [rows[n] for n in left]
            state = state.select(torch.tensor(left, device=logp_NTV.device))
        width = min(COLUMNS, *(len(row.tokens) - row.first - done for row in rows))
        # Column t of what follows is said after token t has been read.
        read_NT = _columns(rows, done - 1, width, logp_NTV.device)
        step, state = read_on(model, state, read_NT)
        logp_NTV = step.logp_NV.view(*read_NT.shape, -1)


def _columns(rows: Sequence[Window], begin: int, width: int, device: torch.device) -> Tensor:
    """(N, T): so many of the tokens that each row scores, from `begin` on."""
    return torch.tensor([row.tokens[row.first :][begin : begin + width] for row in rows], device=device)


def token_ids(model: StepModel, text: str | Sequence[int], place: int, what: str = "text") -> tuple[int, ...]:
    """A text as token ids; `what` and `place` name it in errors."""
    if isinstance(text, str):
        if model.tokenizer is None:
            raise ValueError(
                f"{what} {place} is a string, and the model has no tokenizer. Give token ids, or load the "
                "model from a folder with its tokenizer."
            )
        read = reading(model)[0] if what == "source" else model.tokenizer
        assert read is not None
        return tuple(read.encode(text))
    if isinstance(text, (bytes, bytearray)):
        raise TypeError(f'{what} {place} is bytes: decode them, as .decode("utf-8") does.')
    try:
        found = tuple(map(operator.index, text))
    except TypeError:
        raise TypeError(
            f"{what} {place} is {text!r:.60}, but must be a string or a list of token ids."
        ) from None
    check_ids(reading(model)[1] if what == "source" else model.vocab_size, found, f"{what} {place}")
    return found


def _target(model: StepModel, text: str | Sequence[int], place: int) -> tuple[int, ...]:
    """What an encoder–decoder should say: of a string, its tokens without BOS, and EOS at the end."""
    found = token_ids(model, text, place)
    if not isinstance(text, str) or model.tokenizer is None:
        return found
    bare = found[1:] if found[:1] == (model.tokenizer.bos_id,) else found
    return (*bare, min(model.tokenizer.eos_ids)) if model.tokenizer.eos_ids else bare


def _listed(texts: Sequence[str | Sequence[int]]) -> Sequence[str | Sequence[int]]:
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence) or not texts:
        raise ValueError(f"texts is {texts!r:.60}, but must be a list of one text or more.")
    return texts


@dataclass(frozen=True)
class Perplexity:
    """The perplexity of texts, and what it was made of.

    Perplexity: how many equally probable tokens a model wavers between, on average, at each token of a text.

        PPL = exp( −1/T Σ_t log p(y_t | y_{<t}) )

    Jelinek, Mercer, Bahl & Baker 1977; papers.bib: jelinek1977perplexity

    Every token weighs the same, whichever text it is of. The first token of a text is not scored, since
    nothing stands before it (a tokenizer that writes a beginning-of-text token gives it something). A text
    longer than the context is read in windows that overlap by half of it; teacher_forcing.py says how. Of an
    encoder–decoder every token of the target is scored, given its source, and of a target that is a string
    its end, too. Perplexities under different tokenizers do not compare.
    """

    nats: float
    """−Σ log p of all tokens."""
    tokens: int
    """How many were scored."""
    by_text: tuple[float, ...]
    """The perplexity of each text alone."""

    @property
    def value(self) -> float:
        """exp(nats / tokens)."""
        return _exp(self.nats / self.tokens)


def perplexity(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    sources: Sequence[str | Sequence[int]] | None = None,
    *,
    context: int | None = None,
    stride: int | None = None,
    batch: int = 8,
) -> Perplexity:
    """The perplexity of texts, strings or token ids.

    `context` is the most tokens read at once (the model's own limit, but no more than 1024), `stride` how
    many of them each window scores after the first (half of the context): smaller is slower and kinder.
    An encoder–decoder needs `sources`, one for each text: the texts are then its targets.
    """
    parts = forced(model, texts, sources, context=context, stride=stride)
    nats, counts = [0.0] * len(texts), [0] * len(texts)
    for seen in read(model, parts, batch=batch):
        logp_M = seen.logp_MV.gather(1, seen.token_M[:, None])[:, 0].double()
        for place, logp in zip(seen.text_M.tolist(), logp_M.tolist(), strict=True):
            nats[place] -= logp
            counts[place] += 1
    by_text = tuple(_exp(total / count) for total, count in zip(nats, counts, strict=True))
    return Perplexity(sum(nats), sum(counts), by_text)


def _exp(x: float) -> float:
    return exp(x) if x < 709 else inf
