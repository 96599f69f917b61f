"""Our transforms and picks as a `LogitsProcessor` of transformers.

    model.generate(**inputs, logits_processor=[us.hf.processor(us.BasisAware(0.1), model=model, seed=1)])

Transforms give back logits as they leave them, and `generate` goes on from there: a custom processor comes
before its temperature, top-k and top-p. A pick draws the token itself, with random numbers of the row's own
stream, and leaves that token alone: whatever `generate` does afterwards, it must take it. A row's text is
then the one that `us.generate` gives for the same prompt and seed.

The state of a row is a function of its token ids. Assisted and prompt-lookup decoding call the processor with
candidates that are rolled back, for the assistant and again for the model: each call goes on from the latest
visit to the same ids without their last token. `generate` makes a new `LogitsProcessorList` for every call,
so a new list is a new text, whatever its prompt. An assistant has a list of its own; if its ids continue the
text of a list that is still in use, it goes on with that text. If the processor is called outside of such a
list, ids alone must tell: `reset()` says that the next ones are prompts.
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
from unspool.decode.search.sampling import Sample, bind_transforms, draw, reshape_with_norm
from unspool.integrations.huggingface.causal_model import generation_setting, model_eos_ids, step_from_logits
from unspool.integrations.huggingface.custom_generate import unpadded
from unspool.integrations.huggingface.loading import from_huggingface
from unspool.interfaces import BindablePick, BindableTransform, Pick, Transform

MAX_ROLLBACK = 64
"""How many steps a single row can be rolled back; batches and beams, which nothing rolls back, keep one."""


@dataclass
class _StepState:
    """Every row at one length: what the rules know before the next token, and what came of it."""

    rows: list[tuple[int, ...]]
    paths: list[Hypothesis]
    rng_states: list[Any]
    """Of every row, before its token is drawn, and afterwards; unused without a pick."""
    logp_NV: Tensor | None = None
    scores_NV: Tensor | None = None


@dataclass
class _GenerateCall:
    """One call of `generate`, or of an assistant in it."""

    rules: tuple[tuple[Transform, ...], Pick | None]
    start: _StepState
    visits: dict[int, _StepState] = field(default_factory=dict)
    """The latest one of every length that the text may be rolled back to."""

    def visit(self, rows: list[tuple[int, ...]], eos: frozenset[int]) -> _StepState | None:
        """These rows, if they are the prompts or a visited text with one more token; else None."""
        if rows == self.start.rows:
            return replace(self.start, rng_states=list(self.start.rng_states))
        before = self.visits.get(len(rows[0]) - 1)
        parents = None if before is None else _parents(before.rows, rows)
        if before is None or parents is None:
            return None
        paths = [
            _append_token(before, parent, row[-1], eos) for parent, row in zip(parents, rows, strict=True)
        ]
        return _StepState(rows, paths, [before.rng_states[parent] for parent in parents])

    def keep(self, visit: _StepState) -> None:
        """Remember a visit in the place of what stood at its length and behind."""
        length, kept = len(visit.rows[0]), MAX_ROLLBACK if len(visit.rows) == 1 else 1
        self.visits = {at: it for at, it in self.visits.items() if length - kept < at < length}
        self.visits[length] = visit


class UnspoolLogitsProcessor(LogitsProcessor):  # type: ignore[misc]  # transformers has no types
    """A chain of rules as one of their processors."""

    def __init__(
        self,
        rules: Sequence[Transform | Pick],
        model: Any = None,
        tokenizer: Any = None,
        seed: int | Sequence[int] | None = None,
    ) -> None:
        sample = Sample(*rules)
        self._transforms, self._pick = sample.transforms, sample.pick if _has_pick(rules) else None
        asking = [rule for rule in rules if isinstance(rule, BindablePick | BindableTransform)]
        if asking and model is None:
            raise ValueError(f"{asking[0]!r} must look at the model: say processor(…, model=model)")
        self._model = None if model is None else from_huggingface(model, tokenizer)
        self._eos = frozenset() if model is None else model_eos_ids(model)
        self._pad = None if model is None else generation_setting(model, "pad_token_id")
        self._answers = self._model is not None and self._model.is_encoder_decoder
        self._seed = seed
        self._texts: dict[int, tuple[Any, _GenerateCall]] = {}
        """id of a LogitsProcessorList → a weak reference to it, and its text; 0: calls without a list."""
        self._rngs: list[Random] = []
        self._sources: list[tuple[int, ...]] = []
        """What the encoder read last."""
        if self._answers and self._pick is not None:
            _record_sources(model, self)

    def reset(self) -> None:
        """Forget every text: the next ids are prompts. `generate` does not need it."""
        self._texts.clear()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(N, V) → (N, V)."""
        rows = [tuple(row) for row in input_ids.tolist()]
        text, visit = self._find(_calling_list(), rows, scores)
        live = [place for place, path in enumerate(visit.paths) if path.finish_reason is None]
        step = step_from_logits(scores, None)
        visit.logp_NV = visit.scores_NV = step.logp_NV
        text.keep(visit)
        if not live:
            return scores
        chosen = torch.tensor(live, device=scores.device)
        step, paths = step.select(chosen), [visit.paths[place] for place in live]
        transforms, pick = text.rules
        scores_NV, log_norm_N = reshape_with_norm(step, paths, transforms)
        assert log_norm_N is not None
        visit.scores_NV = visit.logp_NV.index_copy(0, chosen, scores_NV)
        out_NV = scores_NV + log_norm_N[:, None]  # `generate` adds beams up without normalising again
        if pick is not None:
            for place in live:
                self._rngs[place].setstate(visit.rng_states[place])
            tokens_N, _ = draw(step, paths, transforms, pick, [self._rngs[place] for place in live])
            for place in live:
                visit.rng_states[place] = self._rngs[place].getstate()
            out_NV = torch.full_like(out_NV, -torch.inf).scatter_(1, tokens_N[:, None], 0.0)
        return scores.index_copy(0, chosen, out_NV.to(scores.dtype))

    def _find(
        self, owner: Any, rows: list[tuple[int, ...]], scores: Tensor
    ) -> tuple[_GenerateCall, _StepState]:
        """The text that these rows of a list belong to."""
        key = 0 if owner is None else id(owner)
        known = self._texts.get(key)
        visit = None if known is None else known[1].visit(rows, self._eos)
        text = None if visit is None or known is None else known[1]
        if known is None and owner is not None:
            for other in [other for name, (_, other) in self._texts.items() if name]:
                visit = other.visit(rows, self._eos)
                if visit is not None:
                    text = replace(other)  # an assistant's: what it visits, the model has not
                    break
        if text is None or visit is None:
            text = self._begin(rows, scores)
            visit = text.visit(rows, self._eos)
            assert visit is not None
        self._texts[key] = (known[0] if known is not None else self._watched(owner), text)
        return text, visit

    def _watched(self, owner: Any) -> Any:
        """A weak reference to a list, with which its text is forgotten: `generate` has returned."""
        if owner is None:
            return None
        texts, key = ref(self), id(owner)

        def forget(_: Any) -> None:
            processor = texts()
            if processor is not None:
                processor._texts.pop(key, None)

        return ref(owner, forget)

    def _begin(self, rows: list[tuple[int, ...]], scores: Tensor) -> _GenerateCall:
        prompts = [_unpadded(row, self._pad) for row in rows]
        if self._answers and self._sources and len(rows) % len(self._sources) == 0:
            each = len(rows) // len(self._sources)  # `generate` repeats a source for each of its answers
            prompts = [source for source in self._sources for _ in range(each)]
        seeds = self._seeds(len(rows), scores.device)
        job = Job(
            tuple(prompts),
            (2**31,) * len(rows),
            seeds,
            eos=self._eos,
            is_encoder_decoder=self._answers,
            target_prefixes=tuple(row[1:] for row in rows) if self._answers else (),
        )
        transforms, pick, paths = self._transforms, self._pick, job.hypotheses()
        if self._model is not None:
            transforms = bind_transforms(transforms, self._model, job)
            pick = pick.bind(self._model, transforms) if isinstance(pick, BindablePick) else pick
        rng_states = [None if pick is None else job.rng(path).getstate() for path in paths]
        self._rngs.extend(Random(0) for _ in range(len(rows) - len(self._rngs)))
        return _GenerateCall((transforms, pick), _StepState(rows, paths, rng_states))

    def _seeds(self, count: int, device: torch.device) -> tuple[int, ...]:
        if self._seed is None:  # transformers.set_seed and torch.manual_seed decide
            return (int(torch.randint(2**31, (1,), device=device)),) * count
        return seeds_of(self._seed, count)


def _parents(before: list[tuple[int, ...]], rows: list[tuple[int, ...]]) -> list[int] | None:
    """Which row each was a token ago (a beam may have moved them); None if one of them is another text."""
    begun = [row[:-1] for row in rows]
    if begun == before:
        return list(range(len(rows)))
    places = {row: place for place, row in enumerate(before)}
    return [places[row] for row in begun] if all(row in places for row in begun) else None


def _append_token(before: _StepState, parent: int, token: int, eos: frozenset[int]) -> Hypothesis:
    path = before.paths[parent]
    if path.finish_reason is not None:
        return path
    assert before.logp_NV is not None
    assert before.scores_NV is not None
    return replace(
        path,
        tokens=(*path.tokens, token),
        logps=(*path.logps, float(before.logp_NV[parent, token])),
        scores=(*path.scores, float(before.scores_NV[parent, token])),
        finish_reason="eos" if token in eos else None,
    )


def _calling_list() -> Any:
    """The LogitsProcessorList that calls the processor, if one does: it tells calls of `generate` apart."""
    caller = sys._getframe(2).f_locals.get("self")  # behind `RuleProcessor.__call__`
    return caller if isinstance(caller, LogitsProcessorList) else None


def _has_pick(rules: Sequence[Any]) -> bool:
    return bool(rules) and isinstance(rules[-1], Pick)


def _record_sources(model: Any, processor: UnspoolLogitsProcessor) -> None:
    """Let the processor know what the encoder of a model reads, for as long as the processor is in use."""
    noting = ref(processor)

    def note(encoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ARG001
        tokens_NT = kwargs.get("input_ids", args[0] if args else None)
        known = noting()
        if known is None:
            hook.remove()
        elif tokens_NT is not None:
            mask = kwargs.get("attention_mask")
            known._sources = unpadded(tokens_NT, mask)

    hook = model.get_encoder().register_forward_pre_hook(note, with_kwargs=True)


def _unpadded(row: tuple[int, ...], pad: int | None) -> tuple[int, ...]:
    """A row without the padding on its left; one token is left of a row that is nothing else."""
    first = next((place for place, token in enumerate(row) if token != pad), len(row) - 1)
    return row[first:]
