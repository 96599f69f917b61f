"""Score given texts: the log-probability of every token after a prompt.

    log p(y | x) = Σ_t log p(y_t | x, y_{<t})

The chain rule, with teacher forcing; the model reads several tokens at once if it can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor

from unspool import config
from unspool.arguments import as_bool, as_int, shown
from unspool.decode.lockstep import check_model
from unspool.decode.prompts import (
    Prompt,
    Prompts,
    as_batch,
    check_ids,
    encode_without_bos,
    ids_of,
    tokens_left,
)
from unspool.interfaces import Step, StepModel, TokenizerLike

MAX_LOGPS = 1 << 25
"""Log-probabilities in memory at once: 128 MiB in single precision."""
ANCHORS = ("\n", ".", "a")
"""Texts before a continuation that is encoded separately; one that does not merge with it is enough."""


@dataclass(frozen=True)
class Score:
    """The tokens of a text and their log-probabilities after a prompt."""

    tokens: tuple[int, ...]
    logps: tuple[float, ...]
    """log p of each token, given the prompt and the tokens before it."""
    ranked: tuple[tuple[tuple[int, float], ...], ...] = ()
    """The most probable tokens at each position with log p, best first, if `alternatives` were asked for."""

    @property
    def total(self) -> float:
        return math.fsum(self.logps)


@overload
def score(  # type: ignore[overload-overlap]  # a string is a sequence of strings to a type checker
    model: StepModel,
    prompts: Prompt,
    texts: str | Sequence[int],
    *,
    end: bool = False,
    alternatives: int = 0,
    batch_size: int = ...,
) -> Score: ...
@overload
def score(
    model: StepModel,
    prompts: Prompt | Prompts,
    texts: Sequence[str] | Sequence[Sequence[int]],
    *,
    end: bool = False,
    alternatives: int = 0,
    batch_size: int = ...,
) -> list[Score]: ...
def score(
    model: StepModel,
    prompts: Prompt | Prompts,
    texts: str | Sequence[Any],
    *,
    end: bool = False,
    alternatives: int = 0,
    batch_size: int = config.MAX_BATCH_ROWS,
) -> Score | list[Score]:
    """Score each text after its prompt.

    One prompt and one text give one Score. A list of prompts and a list of texts of the same length give a
    list, and so does one prompt with a list of texts.

    prompts: strings, token ids, or chat messages, as in `generate`.
    texts: strings or token ids.
    end: also score the end-of-text token after each text.
    alternatives: how many of the most probable tokens `Score.ranked` has at each position.
    batch_size: the most texts scored at once; it does not change the scores.

    `Score.tokens` are the scored tokens. Prompt and text are tokenized together, unless the tokenizer would
    merge the end of the prompt and the start of the text into one token; then each is tokenized alone.
    """
    check_model(model)
    batch_size = as_int("batch_size", batch_size, at_least=1)
    alternatives = as_int("alternatives", alternatives, at_least=0)
    as_bool("end", end)
    sources, one_prompt = as_batch(prompts)
    targets, one_text = as_batch(texts)
    if one_prompt:
        sources = sources * len(targets)
    if len(sources) != len(targets):
        raise ValueError(
            f"{len(sources)} prompts for {len(targets)} texts: give one text for each prompt, or one prompt"
        )
    pairs = [
        _pair(model, source, target, place, end)
        for place, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]
    scores = [
        text_score
        for first in range(0, len(pairs), batch_size)
        for text_score in _read(model, pairs[first : first + batch_size], alternatives)
    ]
    for place, text_score in enumerate(scores):
        if any(map(math.isnan, text_score.logps)):
            raise ValueError(
                f"a token of text {place} has the log-probability NaN: check the model for overflow "
                "(half precision?) and its weights"
            )
    return scores[0] if one_text and one_prompt else scores


def _pair(
    model: StepModel, prompt: Any, text: Any, place: int, end: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The token ids of a prompt and of the text after it."""
    before = ids_of(model, prompt, place)
    after = _continuation(model, prompt, before, text, place)
    if end:
        eos = sorted(model.eos_ids)
        if not eos:
            raise ValueError(
                "end=True needs an end-of-text token, which this model does not have: leave it out"
            )
        after = (*after, eos[0])
    if not after:
        raise ValueError(f"text {place} is empty: give a text, or end=True")
    check_ids(model.vocab_size, after, f"text {place}")
    left = model.context if model.is_encoder_decoder else tokens_left(model, before)
    if left is not None and len(after) > left:
        raise ValueError(
            f"text {place} has {len(after)} tokens but the context leaves {max(0, left)} after its prompt: "
            "shorten one of them"
        )
    return before, after


def _continuation(
    model: StepModel, prompt: Any, before: tuple[int, ...], text: Any, place: int
) -> tuple[int, ...]:
    if not isinstance(text, Sized):
        raise TypeError(f"text {place} is {shown(text)}, but must be a string or token ids")
    if not isinstance(text, str):
        return ids_of(model, text, place, name="text", is_target=True)
    if model.tokenizer is None:
        raise ValueError(f"text {place} is a string, but the model does not have a tokenizer: give token ids")
    if model.is_encoder_decoder:
        return encode_without_bos(model.tokenizer, text)
    if isinstance(prompt, str):
        return continuation(model.tokenizer, before, text, prompt)
    if len(prompt) and isinstance(prompt[0], Mapping):
        return continuation(model.tokenizer, before, text, model.tokenizer.chat(prompt))
    return continuation(model.tokenizer, before, text)


def continuation(
    tokenizer: TokenizerLike, before: Sequence[int], text: str, prompt: str | None = None
) -> tuple[int, ...]:
    """Encode a text that continues a prompt, given as ids and, if known, as a string.

    The result are the tokens after those of the prompt in prompt + text. If the tokenizer merges the end of
    the prompt and the start of the text, or encodes the prompt differently, the text is encoded separately,
    without the space that some tokenizers add before a text. In both cases the tokens decode to prompt +
    text.
    """
    backwards = getattr(tokenizer, "right_to_left", False)
    read = tokenizer.decode(before)

    def joined(first: str) -> str:
        return text + first if backwards else first + text

    def after(first: str, ids: Sequence[int]) -> tuple[int, ...] | None:
        all_ids = tokenizer.encode(joined(first))
        return tuple(all_ids[len(ids) :]) if all_ids[: len(ids)] == [*ids] else None

    continued = after(read if prompt is None else prompt, before)
    if continued is not None and (prompt is not None or read):
        return continued
    apart = [after(anchor, tokenizer.encode(anchor)) for anchor in ANCHORS]
    # After a special token a text has its first space, as at the start.
    begins = not before or tokenizer.piece(before[-1]) is None
    alone = encode_without_bos(tokenizer, text)
    tries, known, expected = [*apart, alone], tuple(before), joined(read)
    if begins and not backwards:
        tries, known, expected = [alone, *apart], (), text
    possible = [ids for ids in tries if ids is not None]
    return next((ids for ids in possible if tokenizer.decode([*known, *ids]) == expected), possible[0])


def _read(
    model: StepModel, pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], alternatives: int
) -> list[Score]:
    logps: list[list[float]] = [[] for _ in pairs]
    ranked: list[list[tuple[tuple[int, float], ...]]] = [[] for _ in pairs]

    for live, _, step, width in read_pairs(model, pairs):
        targets = [pairs[pair][1][len(logps[pair]) : len(logps[pair]) + width] for pair in live]
        targets_NT = torch.tensor(targets, device=step.logp_NV.device)
        logp_NT = step.logp_NV.gather(1, targets_NT.flatten()[:, None]).view(targets_NT.shape)
        for pair, own in zip(live, logp_NT.tolist(), strict=True):
            logps[pair] += own
        if alternatives:
            best = step.logp_NV.topk(min(alternatives, step.logp_NV.shape[1]))
            tokens_NTK = best.indices.view(*targets_NT.shape, -1).tolist()
            values_NTK = best.values.view(*targets_NT.shape, -1).tolist()
            for pair, tokens_TK, values_TK in zip(live, tokens_NTK, values_NTK, strict=True):
                ranked[pair] += (
                    tuple(zip(*each, strict=True)) for each in zip(tokens_TK, values_TK, strict=True)
                )
    return [
        Score(text, tuple(own), tuple(best))
        for (_, text), own, best in zip(pairs, logps, ranked, strict=True)
    ]


def read_pairs(
    model: StepModel, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> Iterator[tuple[list[int], int, Step, int]]:
    """Read the texts of (prompt, text) pairs in one batch; finished rows leave it.

    Yields the indices of the rows, the number of tokens of each that were scored before, a Step with `width`
    distributions for each row, and `width`.
    """
    step, state = model.start([before for before, _ in pairs])
    live, done, width = list(range(len(pairs))), 0, 1
    while True:
        yield live, done, step, width
        done += width
        stay = [row for row, pair in enumerate(live) if len(pairs[pair][1]) > done]
        if not stay:
            return
        device = step.logp_NV.device
        if len(stay) < len(live):
            state = state.select(torch.tensor(stay, device=device))
        live = [live[row] for row in stay]
        width = min(len(pairs[pair][1]) for pair in live) - done
        width = max(1, min(width, MAX_LOGPS // (len(live) * model.vocab_size)))
        read = [list(pairs[pair][1][done - 1 : done - 1 + width]) for pair in live]
        step, state = read_on(model, state, torch.tensor(read, device=device))


def read_steps(
    model: StepModel, prompts: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]
) -> Iterator[tuple[list[int], Step]]:
    """Yield after 0, 1, … tokens of the rows: the indices of rows that are long enough, and their Step."""
    pairs = [(prompt, [*row, 0]) for prompt, row in zip(prompts, rows, strict=True)]  # the 0 is not read
    for live, _, step, width in read_pairs(model, pairs):
        for place in range(width):
            yield live, step.map(lambda part, place=place, width=width: part[place::width])  # type: ignore[misc]


def read_on(model: StepModel, state: Any, tokens_NT: Tensor) -> tuple[Step, Any]:
    """Append T tokens to every row, at once if the model can; the Step has T rows for each row."""
    if model.rewindable is not None:
        return model.rewindable.extend(state, tokens_NT)
    steps = []
    for tokens_N in tokens_NT.unbind(1):
        step, state = model.step(state, tokens_N)
        steps.append(step)
    return Step.merge(steps, lambda parts: torch.stack(parts, dim=1).flatten(0, 1)), state
