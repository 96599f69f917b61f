"""Results of decoding: finished texts (Output) and pieces of texts that still grow (Piece)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, ClassVar

from unspool.decode.hypothesis import Hypothesis, Job, Ranked, SearchStep
from unspool.decode.loops import ApproximateLoop, Loop
from unspool.decode.search.beam_state import Node
from unspool.errors import clip
from unspool.interfaces import FinishReason, TokenizerLike

OUTPUT_NOTES = ("loop", "approximate_loop", "tree")
"""Notes of a hypothesis that are fields of Output; the others become its `stats`."""
REPR_CHARACTERS = 60
MAX_SURPRISE = 10.0
"""−log p of the darkest token in HTML, in nats."""


@dataclass(frozen=True, repr=False)
class Output:
    """One finished text; `print` shows the text, and notebooks colour each token by its surprise, −log p."""

    text: str
    """The generated text, without the prompt; empty if the model has no tokenizer."""
    tokens: tuple[int, ...]
    """Its token ids; the end-of-text token is the last one if finish_reason is "eos"."""
    logps: tuple[float, ...]
    """log p of each token by the model itself."""
    scores: tuple[float, ...]
    """log p of each token in the transformed distribution that it was drawn from. In a beam that sums another
    score (contrastive decoding's difference, which may be above 0), that score of each token."""
    finish_reason: FinishReason
    """Why it ended: "eos", "length", "stop" (a stop string or token) or "loop"."""
    seed: int
    """The seed of its random stream: the same prompt, seed and sample number give this text again."""
    total: float | None = None
    """Score of the whole text if the decoder ranks texts, as a beam does; the length penalty is included."""
    ranked: tuple[Ranked, ...] = ()
    """The most probable tokens at every step, as many as the option `alternatives`."""
    loop: Loop | None = None
    """Start and period of the loop if the text was stopped for one."""
    approximate_loop: ApproximateLoop | None = None
    """How much of its last words repeats if it was stopped for an approximate loop."""
    tree: tuple[Node, ...] | None = field(default=None, compare=False, repr=False)
    """Every hypothesis that a beam considered; on the best text of each prompt."""
    stats: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Counts that the decoder kept, such as accepted draft tokens."""

    _tokenizer: ClassVar[TokenizerLike | None] = None
    """For HTML only; it is not pickled."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        text = clip(self.text, REPR_CHARACTERS)
        return f"Output({text!r}, finish_reason={self.finish_reason!r}, {len(self.tokens)} tokens)"

    def _repr_html_(self) -> str:
        """Every token on a background that is darker the larger its surprise, −log p."""
        show = str if self._tokenizer is None else self._tokenizer.show
        spans = []
        for token, logp in zip(self.tokens, self.logps, strict=True):
            opacity = min(max(0.0, -logp), MAX_SURPRISE) / MAX_SURPRISE
            spans.append(
                f'<span style="background: rgba(255, 120, 0, {opacity:.2f})" '
                f'title="token {token}, −log p = {-logp:.2f}">{escape(show(token))}</span>'
            )
        separator = " " if self._tokenizer is None else ""
        return f'<div style="white-space: pre-wrap">{separator.join(spans)}</div>'

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_tokenizer"}


@dataclass(frozen=True)
class Piece:
    """Text that has become final since the piece before it."""

    text: str
    tokens: tuple[int, ...]
    request: int
    """Index of its prompt."""
    sample: int
    """Index of its text among the n of the prompt."""
    finish_reason: FinishReason | None
    """Set on the last piece of a text."""
    logps: tuple[float, ...] = ()
    """log p of each of its tokens by the model itself."""
    scores: tuple[float, ...] = ()
    """As in Output, for its tokens."""
    ranked: tuple[Ranked, ...] = ()
    """As in Output, for its tokens."""

    def __str__(self) -> str:
        return self.text


def output_of(hypothesis: Hypothesis, job: Job, tokenizer: TokenizerLike | None) -> Output:
    if hypothesis.finish_reason is None:
        raise RuntimeError("a hypothesis ended without a finish_reason: this is a bug of the decoder")
    notes = hypothesis.notes
    output = Output(
        text="" if hypothesis.detokenizer is None else hypothesis.detokenizer.close(),
        tokens=hypothesis.tokens,
        logps=hypothesis.logps,
        scores=hypothesis.scores,
        finish_reason=hypothesis.finish_reason,
        seed=job.seeds[hypothesis.request],
        total=hypothesis.total,
        ranked=_with_texts(hypothesis.ranked, tokenizer),
        loop=notes.get("loop"),
        approximate_loop=notes.get("approximate_loop"),
        tree=notes.get("tree"),
        stats={name: note for name, note in notes.items() if name not in OUTPUT_NOTES},
    )
    object.__setattr__(output, "_tokenizer", tokenizer)
    return output


def pieces_of(steps: Iterator[SearchStep], streams: bool, tokenizer: TokenizerLike | None) -> Iterator[Piece]:
    """Yield the text that each step made final; everything at its end if the decoder does not stream."""
    shown: dict[tuple[int, int], tuple[int, int]] = {}
    for step in steps:
        for hypothesis in (*(step.live if streams else ()), *step.ended):
            key = (hypothesis.request, hypothesis.sample)
            tokens, characters = shown.get(key, (0, 0))
            detokenizer, finish_reason = hypothesis.detokenizer, hypothesis.finish_reason
            text = "" if detokenizer is None else detokenizer.close() if finish_reason else detokenizer.text
            if len(text) > characters or finish_reason or detokenizer is None:
                new = hypothesis.tokens[tokens:]
                values = hypothesis.logps[tokens:], hypothesis.scores[tokens:]
                ranked = _with_texts(hypothesis.ranked[tokens:], tokenizer)
                yield Piece(text[characters:], new, *key, finish_reason, *values, ranked)
                shown[key] = (len(hypothesis.tokens), len(text))


def _with_texts(ranked: Sequence[Ranked], tokenizer: TokenizerLike | None) -> tuple[Ranked, ...]:
    if tokenizer is None:
        return tuple(ranked)
    return tuple(
        replace(each, texts={token: tokenizer.show(token) for token, _ in (*each.model, *each.drawn)})
        for each in ranked
    )
