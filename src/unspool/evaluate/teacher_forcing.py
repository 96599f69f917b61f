"""Teacher forcing: the model's distribution at every token of a text, and perplexity.

    log p(· | y_{s} … y_{t−1}),   t − s < context

A text longer than the context is read in overlapping windows. Each window scores only the tokens that the
previous one did not. So every token but the first is scored exactly once, after at least context − stride
tokens (fewer only at the start of the text).

An encoder–decoder reads a source and scores its target, including EOS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.arguments import as_int, ids, items, shown
from unspool.decode.lockstep import check_model
from unspool.decode.prompts import encode_without_bos, ids_of, tokens_left
from unspool.decode.score import read_pairs
from unspool.evaluate.diversity import check_texts
from unspool.evaluate.significance import bounded_exp
from unspool.interfaces import StepModel


@dataclass(frozen=True)
class Window:
    """A part of a text."""

    text: int
    tokens: tuple[int, ...]
    first: int
    """Index of the first scored token; the tokens before it are context."""


@dataclass(frozen=True, eq=False)
class ReadTokens:
    """The model's distributions at M positions, and the tokens of the texts there."""

    logp_MV: Tensor
    token_M: Tensor
    text_M: Tensor


def forced(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    sources: Sequence[str | Sequence[int]] | None = None,
    *,
    context: int | None = None,
    stride: int | None = None,
    cut: bool = False,
) -> list[Window]:
    """Split texts (strings or token ids) into windows that fit into the context.

    For an encoder–decoder, texts are targets and `sources` are required; EOS is added to strings. Targets
    longer than the context are cut if `cut`, else they raise a ValueError.
    """
    check_model(model)
    check_texts(texts)
    if not model.is_encoder_decoder:
        if sources is not None:
            raise ValueError(
                "sources are for encoder–decoders, but the model is a language model: leave them out"
            )
        return windows(encode(model, texts), fitting(model, context), stride)
    if sources is None:
        raise ValueError("the model is an encoder–decoder: give sources=[…], one for each text")
    if context is not None or stride is not None:
        raise ValueError(
            "context and stride are for language models, but the model is an encoder–decoder: leave them out"
        )
    if isinstance(sources, str) or len(sources) != len(texts):
        raise ValueError(f"sources is {sources!r:.60}, but must be a list with one source for each text")
    pairs = [
        (token_ids(model, source, index, "source"), _target(model, text, index))
        for index, (source, text) in enumerate(zip(sources, texts, strict=True))
    ]
    return paired(model, pairs, cut=cut)


def encode(model: StepModel, texts: Sequence[str | Sequence[int]]) -> list[tuple[int, ...]]:
    """Encode texts as token ids; each needs at least two tokens."""
    rows = [token_ids(model, text, index) for index, text in enumerate(texts)]
    for index, row in enumerate(rows):
        if len(row) < 2:
            raise ValueError(f"text {index} has {len(row)} tokens but needs at least 2: leave it out")
    return rows


def paired(
    model: StepModel, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], *, cut: bool = False
) -> list[Window]:
    """Make a window of each source and target (without BOS); only the target is scored.

    Targets longer than the context are cut if `cut`, else they raise a ValueError.
    """
    result = []
    for index, (source, target) in enumerate(pairs):
        if not source or not target:
            raise ValueError(
                f"pair {index} has a source of {len(source)} and a target of {len(target)} tokens: "
                "leave out pairs with an empty side"
            )
        max_size = model.context
        for side, tokens in {"source": source, "target": target}.items():
            if max_size is not None and len(tokens) > max_size and not (cut and side == "target"):
                raise ValueError(
                    f"pair {index} has a {side} of {len(tokens)} tokens but the context is {max_size}: "
                    "shorten it"
                )
        result.append(Window(index, (*source, *target[:max_size]), len(source)))
    return result


def token_pairs(
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Check pairs of a prompt (or source) and its continuation, and return them as tuples of token ids."""
    wanted = "pairs of a prompt and its continuation, each as token ids"
    result = []
    for pair in items("texts", texts, wanted):
        both = items("texts", pair, wanted)
        if len(both) != 2:
            raise ValueError(f"texts has {shown(pair)}, but must have {wanted}")
        prompt, right = (ids("texts", text, empty=True) for text in both)
        result.append((prompt, right))
    if not result:
        raise ValueError(f"texts is empty, but must have {wanted}")
    return result


def windows(
    rows: Sequence[Sequence[int]], context: int | None = None, stride: int | None = None
) -> list[Window]:
    """Split rows into windows of at most `context` tokens; all but the first score at most `stride`."""
    if stride is not None:
        stride = as_int("stride", stride, at_least=1, advice="Each window scores so many tokens.")
        if context is None or stride >= context:
            raise ValueError(f"stride is {stride} and context {context}, but must be 1 ≤ stride < context")
    result = []
    for index, row in enumerate(rows):
        size = context or len(row)
        step = stride or max(size // 2, 1)
        result.append(Window(index, tuple(row[:size]), 1))
        for scored in range(size, len(row), step):
            end = min(scored + step, len(row))
            begin = max(end - size, 0)
            result.append(Window(index, tuple(row[begin:end]), scored - begin))
    return result


def fitting(model: StepModel, context: int | None, max_size: int = 1024) -> int:
    """Return the window size: `context`, or at most `max_size` tokens that fit into the model's context."""
    free = tokens_left(model, [0])  # less than the context if the model reads a negative prompt
    limit = None if free is None else free + 1
    if limit is not None and limit < 2:
        raise ValueError("the negative prompt fills the context: shorten it")
    if context is None:
        return max_size if limit is None else min(max_size, limit)
    context = as_int("context", context, at_least=2, advice="A window needs a context and a scored token.")
    if limit is not None and context > limit:
        raise ValueError(f"context is {context}, but the model reads at most {limit} tokens")
    return context


@torch.inference_mode()
def read(model: StepModel, parts: Sequence[Window], *, batch: int = 8) -> Iterator[ReadTokens]:
    """Yield the distributions at all scored tokens; windows with similar numbers of them share a batch."""
    batch = as_int("batch", batch, at_least=1, advice="It is the number of texts per batch.")
    order = sorted(parts, key=lambda part: (len(part.tokens) - part.first, part.first), reverse=True)
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        pairs = [(row.tokens[: row.first], row.tokens[row.first :]) for row in rows]
        for live, done, step, width in read_pairs(model, pairs):
            token_NT = torch.tensor([pairs[row][1][done : done + width] for row in live])
            text_N1 = torch.tensor([rows[row].text for row in live])[:, None]
            at = (token_NT.flatten(), text_N1.expand_as(token_NT).flatten())
            yield ReadTokens(step.logp_NV, *(index.to(step.logp_NV.device) for index in at))


def token_ids(model: StepModel, text: str | Sequence[int], index: int, what: str = "text") -> tuple[int, ...]:
    """Encode a text as token ids; error messages name it by `what` and `index`."""
    return ids_of(model, text, index, name=what, is_target=what != "source")


def _target(model: StepModel, text: str | Sequence[int], index: int) -> tuple[int, ...]:
    """Encode a target; the ids of a string lose BOS and get EOS."""
    if not isinstance(text, str) or model.tokenizer is None:
        return token_ids(model, text, index)
    bare = encode_without_bos(model.tokenizer, text)
    return (*bare, min(model.tokenizer.eos_ids)) if model.tokenizer.eos_ids else bare


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of texts.

        PPL = exp( −1/T Σ_t log p(y_t | y_{<t}) )

    Jelinek, Mercer, Bahl & Baker 1977 (papers.bib: jelinek1977perplexity).

    Every token has the same weight. The first token of a text is not scored, because it has no context; with
    BOS, that is BOS. Texts longer than the context are read in windows that overlap by half. For an
    encoder–decoder, every token of the target is scored, including the EOS of strings. Compare perplexities
    only for the same tokenizer.
    """

    nats: float
    """−Σ log p of all tokens."""
    tokens: int
    by_text: tuple[float, ...]

    @property
    def value(self) -> float:
        """exp(nats / tokens)."""
        return bounded_exp(self.nats / self.tokens)


def perplexity(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    sources: Sequence[str | Sequence[int]] | None = None,
    *,
    context: int | None = None,
    stride: int | None = None,
    batch: int = 8,
) -> Perplexity:
    """Compute the perplexity of texts, given as strings or token ids.

    `context` is the window size (default: the model's limit, at most 1024). `stride` is the number of tokens
    that each window after the first scores (default: half of the context); a smaller stride gives every token
    more context and takes longer. An encoder–decoder needs `sources`, one per text.
    """
    nats, counts = text_nats(model, forced(model, texts, sources, context=context, stride=stride), batch)
    by_text = tuple(bounded_exp(total / count) for total, count in zip(nats, counts, strict=True))
    return Perplexity(sum(nats), sum(counts), by_text)


def text_nats(model: StepModel, parts: Sequence[Window], batch: int = 8) -> tuple[list[float], list[int]]:
    """Return −Σ log p and the number of scored tokens of each text."""
    texts = 1 + max(part.text for part in parts)
    nats, counts = [0.0] * texts, [0] * texts
    for seen in read(model, parts, batch=batch):
        logp_M = seen.logp_MV.gather(1, seen.token_M[:, None])[:, 0].double()
        for index, logp in zip(seen.text_M.tolist(), logp_M.tolist(), strict=True):
            nats[index] -= logp
            counts[index] += 1
    return nats, counts
