"""Transforms and picks as a `LogitsProcessor` of transformers.

    model.generate(**inputs, logits_processor=[us.hf.processor(us.BasisAware(0.1), model=model, seed=1)])

Transforms return changed logits, and `generate` continues with them: custom processors run before its
temperature, top-k and top-p. A pick draws the token with the random stream of the row and sets all other
logits to −∞, so that `generate` must take it. The text then equals that of `us.generate` for the same prompt
and seed.

The state of a row depends only on its token ids. Assisted and prompt-lookup decoding call the processor with
candidates that are rolled back, for the assistant and again for the model: each call continues from the
latest step with the same ids without the last token. `generate` creates a new `LogitsProcessorList` for every
call, so a new list means a new text. The assistant has another list; if its ids continue the text of a list
that is still in use, it shares that text. Outside such a list, call `reset()` before a new prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.rng import seeds_of
from unspool.decode.search.sampling import Sample, bind_rules, draw, reshape_with_norm
from unspool.heads.softmax import step_from_logits
from unspool.integrations.huggingface.causal_model import generation_setting, model_eos_ids
from unspool.integrations.huggingface.custom_generate import unpadded
from unspool.integrations.huggingface.loading import from_huggingface
from unspool.interfaces import BindablePick, BindableTransform, Pick, Transform

MAX_ROLLBACK = 64
"""Steps that a single row can be rolled back. Batches and beams are never rolled back and keep one step."""


@dataclass
class _StepState:
    """The state of all rows at one length."""

    rows: list[tuple[int, ...]]
    hypotheses: list[Hypothesis]
    rng_states: list[Any]
    """Random state of each row; unused without a pick."""
    logp_NV: Tensor | None = None
    scores_NV: Tensor | None = None

    def append(self, row: int, token: int, job: Job) -> Hypothesis:
        """The hypothesis of a row with another token, unless it has ended."""
        hypothesis = self.hypotheses[row]
        if hypothesis.finish_reason is not None:
            return hypothesis
        assert self.logp_NV is not None
        assert self.scores_NV is not None
        return hypothesis.extend(
            token, float(self.logp_NV[row, token]), float(self.scores_NV[row, token]), job
        )


@dataclass
class _GenerateCall:
    """The text of one call of `generate`, or of its assistant."""

    job: Job
    rules: tuple[tuple[Transform, ...], Pick | None]
    start: _StepState
    steps: dict[int, _StepState] = field(default_factory=dict)
    """Length → its latest state, for every length that the text can be rolled back to."""

    def state_of(self, rows: list[tuple[int, ...]]) -> _StepState | None:
        """The state of these rows if they are the prompts or extend a known step by one token, else None."""
        if rows == self.start.rows:
            return replace(self.start, rng_states=list(self.start.rng_states))
        before = self.steps.get(len(rows[0]) - 1)
        parents = None if before is None else _parents(before.rows, rows)
        if before is None or parents is None:
            return None
        hypotheses = [before.append(at, row[-1], self.job) for at, row in zip(parents, rows, strict=True)]
        return _StepState(rows, hypotheses, [before.rng_states[parent] for parent in parents])

    def keep(self, state: _StepState) -> None:
        """Store a state and drop those of the same or larger length."""
        length, limit = len(state.rows[0]), MAX_ROLLBACK if len(state.rows) == 1 else 1
        self.steps = {at: step for at, step in self.steps.items() if length - limit < at < length}
        self.steps[length] = state


class UnspoolLogitsProcessor(LogitsProcessor):  # type: ignore[misc]  # transformers has no types
    """A chain of transforms and an optional pick as a LogitsProcessor."""

    def __init__(
        self,
        rules: Sequence[Transform | Pick],
        model: Any = None,
        tokenizer: Any = None,
        seed: int | Sequence[int] | None = None,
    ) -> None:
        self._sample = Sample(*rules)
        self._pick = self._sample.pick if rules and isinstance(rules[-1], Pick) else None
        bindable = [rule for rule in rules if isinstance(rule, BindablePick | BindableTransform)]
        if bindable and model is None:
            raise ValueError(f"{bindable[0]!r} needs the model: use processor(…, model=model)")
        self._model = None if model is None else from_huggingface(model, tokenizer)
        self._eos = frozenset() if model is None else model_eos_ids(model)
        self._pad = None if model is None else generation_setting(model, "pad_token_id")
        self._is_seq2seq = self._model is not None and self._model.is_encoder_decoder
        self._seed = seed
        self._calls: dict[int, tuple[Any, _GenerateCall]] = {}
        """id of a LogitsProcessorList → weak reference and its call; 0: calls without a list."""
        self._rngs: list[Random] = []
        self._sources: list[tuple[int, ...]] = []
        """The latest input of the encoder."""
        if self._is_seq2seq and self._pick is not None:
            _record_sources(model, self)

    def reset(self) -> None:
        """Forget all texts, so that the next ids are prompts. Not needed with `generate`."""
        self._calls.clear()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Logits (N, V) → logits (N, V)."""
        rows = [tuple(row) for row in input_ids.tolist()]
        call, state = self._find(_calling_list(), rows, scores)
        live = [row for row, hypothesis in enumerate(state.hypotheses) if hypothesis.finish_reason is None]
        step = step_from_logits(scores, None)
        state.logp_NV = state.scores_NV = step.logp_NV
        call.keep(state)
        if not live:
            return scores
        live_M = torch.tensor(live, device=scores.device)
        step, hypotheses = step.select(live_M), [state.hypotheses[row] for row in live]
        transforms, pick = call.rules
        scores_NV, log_norm_N = reshape_with_norm(step, hypotheses, transforms)
        assert log_norm_N is not None
        state.scores_NV = state.logp_NV.index_copy(0, live_M, scores_NV)
        out_NV = scores_NV + log_norm_N[:, None]  # beam search of `generate` does not normalise again
        if pick is not None:
            for row in live:
                self._rngs[row].setstate(state.rng_states[row])
            tokens_N, _ = draw(step, hypotheses, transforms, pick, [self._rngs[row] for row in live])
            for row in live:
                state.rng_states[row] = self._rngs[row].getstate()
            out_NV = torch.full_like(out_NV, -torch.inf).scatter_(1, tokens_N[:, None], 0.0)
        return scores.index_copy(0, live_M, out_NV.to(scores.dtype))

    def _find(
        self, owner: Any, rows: list[tuple[int, ...]], scores: Tensor
    ) -> tuple[_GenerateCall, _StepState]:
        """The call that these rows belong to, and their state."""
        key = 0 if owner is None else id(owner)
        entry = self._calls.get(key)
        state = None if entry is None else entry[1].state_of(rows)
        call = None if state is None or entry is None else entry[1]
        if entry is None and owner is not None:
            for other in [other for name, (_, other) in self._calls.items() if name]:
                state = other.state_of(rows)
                if state is not None:
                    call = replace(other)  # the assistant's copy: its steps are not the model's
                    break
        if call is None or state is None:
            call = self._begin(rows, scores)
            state = call.state_of(rows)
            assert state is not None
        self._calls[key] = (entry[0] if entry is not None else self._weak_reference(owner), call)
        return call, state

    def _weak_reference(self, owner: Any) -> Any:
        """A weak reference to a list; its call is forgotten when `generate` returns."""
        if owner is None:
            return None
        this, key = ref(self), id(owner)

        def forget(_: Any) -> None:
            processor = this()
            if processor is not None:
                processor._calls.pop(key, None)

        return ref(owner, forget)

    def _begin(self, rows: list[tuple[int, ...]], scores: Tensor) -> _GenerateCall:
        prompts = [_unpadded(row, self._pad) for row in rows]
        if self._is_seq2seq and self._sources and len(rows) % len(self._sources) == 0:
            each = len(rows) // len(self._sources)  # `generate` repeats each source
            prompts = [source for source in self._sources for _ in range(each)]
        seeds = self._seeds(len(rows), scores.device)
        job = Job(
            tuple(prompts),
            (2**31,) * len(rows),
            seeds,
            eos=self._eos,
            is_encoder_decoder=self._is_seq2seq,
            target_prefixes=tuple(row[1:] for row in rows) if self._is_seq2seq else (),
        )
        transforms, pick, hypotheses = self._sample.transforms, self._pick, job.hypotheses()
        if self._model is not None:
            transforms, bound = bind_rules(transforms, self._sample.pick, self._model, job)
            pick = None if pick is None else bound
        rng_states = [None if pick is None else job.rng(hypothesis).getstate() for hypothesis in hypotheses]
        self._rngs.extend(Random(0) for _ in range(len(rows) - len(self._rngs)))
        return _GenerateCall(job, (transforms, pick), _StepState(rows, hypotheses, rng_states))

    def _seeds(self, count: int, device: torch.device) -> tuple[int, ...]:
        if self._seed is None:  # reproducible with transformers.set_seed and torch.manual_seed
            return (int(torch.randint(2**31, (1,), device=device)),) * count
        return seeds_of(self._seed, count)


def _parents(before: list[tuple[int, ...]], rows: list[tuple[int, ...]]) -> list[int] | None:
    """The index of each row one token ago (beams reorder rows); None if a row is new."""
    prefixes = [row[:-1] for row in rows]
    if prefixes == before:
        return list(range(len(rows)))
    index = {row: at for at, row in enumerate(before)}
    return [index[row] for row in prefixes] if all(row in index for row in prefixes) else None


def _calling_list() -> Any:
    """The LogitsProcessorList that calls the processor, or None; each `generate` call has its own."""
    caller = sys._getframe(2).f_locals.get("self")  # the caller of `UnspoolLogitsProcessor.__call__`
    return caller if isinstance(caller, LogitsProcessorList) else None


def _record_sources(model: Any, processor: UnspoolLogitsProcessor) -> None:
    """Record the encoder's input for a processor as long as the processor exists."""
    this = ref(processor)

    def record(encoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ARG001
        tokens_NT = kwargs.get("input_ids", args[0] if args else None)
        alive = this()
        if alive is None:
            hook.remove()
        elif tokens_NT is not None:
            alive._sources = unpadded(tokens_NT, kwargs.get("attention_mask"))

    hook = model.get_encoder().register_forward_pre_hook(record, with_kwargs=True)


def _unpadded(row: tuple[int, ...], pad: int | None) -> tuple[int, ...]:
    """A row without left padding; a row of padding keeps one token."""
    first = next((at for at, token in enumerate(row) if token != pad), len(row) - 1)
    return row[first:]
