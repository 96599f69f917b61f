"""What users are given of a search: finished texts, and pieces of texts that are still growing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unspool.decode.hypothesis import Hypothesis, Job, Ranked, SearchStep
from unspool.decode.loops import ApproximateLoop, Loop
from unspool.decode.search.beam_state import Node
from unspool.interfaces import FinishReason, TokenizerLike

NOTES = ("loop", "approximate_loop", "tree")
"""Notes of a path that have a field of their own in Output."""


@dataclass(frozen=True)
class Output:
    """One finished text and how it came about."""

    text: str
    """What was generated, without the prompt; empty for a model that has no tokenizer."""
    tokens: tuple[int, ...]
    """Its token ids; the end-of-text token is the last one where finish is "eos"."""
    logps: tuple[float, ...]
    """log p of each token by the model itself."""
    scores: tuple[float, ...]
    """log p of each token in the distribution that it was drawn from, transforms applied; what it added to
    the sum of a beam that adds up another score (contrastive decoding's difference, which may be above 0)."""
    finish_reason: FinishReason
    """Why it ended: "eos", "length", "stop" (a stop string or token) or "loop"."""
    seed: int
    """The seed of its random stream: the same prompt, seed and sample number give this text again."""
    total: float | None = None
    """Score of the whole hypothesis, where the search ranks hypotheses."""
    ranked: tuple[Ranked, ...] = ()
    """The most probable tokens at every step, where `alternatives` were asked for."""
    loop: Loop | None = None
    """Where the text began to go round in circles, and with what period, where it was stopped for that."""
    approximate_loop: ApproximateLoop | None = None
    """How much of its last words repeats, if it was stopped for an approximate loop."""
    tree: tuple[Node, ...] | None = field(default=None, compare=False, repr=False)
    """Every hypothesis that a beam looked at, on the best text of each prompt."""
    stats: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What the search counted on the way."""


@dataclass(frozen=True)
class Piece:
    """Text that has become certain since the piece before it."""

    text: str
    tokens: tuple[int, ...]
    request: int
    """Which prompt it answers."""
    sample: int
    """Which of the n answers."""
    finish_reason: FinishReason | None
    """Set on the last piece of a text."""
    logps: tuple[float, ...] = ()
    """log p of each of its tokens by the model itself."""
    scores: tuple[float, ...] = ()
    """As in Output, of its tokens."""
    ranked: tuple[Ranked, ...] = ()
    """As in Output, of its tokens."""


def output_of(path: Hypothesis, job: Job, spelling: TokenizerLike | None) -> Output:
    """A finished path as what users are given."""
    if path.finish_reason is None:
        raise RuntimeError("a search ended a path without saying why: this is a bug of that search")
    return Output(
        text=_text(path),
        tokens=path.tokens,
        logps=path.logps,
        scores=path.scores,
        finish_reason=path.finish_reason,
        seed=job.seeds[path.request],
        total=path.total,
        ranked=_readable(path.ranked, spelling),
        loop=path.notes.get("loop"),
        approximate_loop=path.notes.get("approximate_loop"),
        tree=path.notes.get("tree"),
        stats={name: note for name, note in path.notes.items() if name not in NOTES},
    )


def pieces_of(
    frontiers: Iterator[SearchStep], streams: bool, spelling: TokenizerLike | None
) -> Iterator[Piece]:
    """What has become certain with each frontier; all at its end, where a search may change its mind."""
    shown: dict[tuple[int, int], tuple[int, int]] = {}
    for frontier in frontiers:
        for path in (*(frontier.live if streams else ()), *frontier.ended):
            key = (path.request, path.sample)
            tokens, characters = shown.get(key, (0, 0))
            text = (
                _text(path)
                if path.finish_reason
                else ""
                if path.detokenizer is None
                else path.detokenizer.text
            )
            if len(text) > characters or path.finish_reason or path.detokenizer is None:
                yield Piece(
                    text[characters:],
                    path.tokens[tokens:],
                    *key,
                    path.finish_reason,
                    path.logps[tokens:],
                    path.scores[tokens:],
                    _readable(path.ranked[tokens:], spelling),
                )
                shown[key] = (len(path.tokens), len(text))


def _text(path: Hypothesis) -> str:
    return "" if path.detokenizer is None else path.detokenizer.close()


def _readable(ranked: Sequence[Ranked], spelling: TokenizerLike | None) -> tuple[Ranked, ...]:
    """The same, with every token's text."""
    if spelling is None:
        return tuple(ranked)
    return tuple(
        replace(each, texts={token: spelling.show(token) for token, _ in (*each.model, *each.drawn)})
        for each in ranked
    )
