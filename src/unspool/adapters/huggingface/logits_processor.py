"""Our transforms and picks as a `LogitsProcessor` of transformers.

    model.generate(**inputs, logits_processor=[us.hf.processor(us.BasisAware(0.1), model=model, seed=1)])

Transforms give back logits as they leave them, and `generate` goes on from there: a custom processor comes
before its temperature, top-k and top-p. A pick draws the token itself from the row's random stream
(`decode.rng`) and leaves that token alone: whatever `generate` does afterwards, it must take it. A row's text
is then the one that `us.generate` gives for the same prompt and seed. The prompt of an encoder–decoder is its
source, which processors are not given: it is noted when the encoder reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from transformers import LogitsProcessor

from unspool.adapters.huggingface.custom_generate import unpadded
from unspool.adapters.huggingface.special_tokens import ending_ids, stated
from unspool.adapters.huggingface.wrapped_model import said
from unspool.adapters.huggingface.wrapping import from_huggingface
from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.decode.rng import seeds_of
from unspool.decode.search.reshape import prepared, reshaped
from unspool.decode.search.sample import Sample
from unspool.decode.search.token_loop import draw
from unspool.protocols import Bindable, Pick, Preparing, Transform


class RuleProcessor(LogitsProcessor):  # type: ignore[misc]  # transformers has no types
    """A chain of rules as one of their processors. It follows one call of `generate` at a time."""

    def __init__(
        self,
        rules: Sequence[Transform | Pick],
        model: Any = None,
        tokenizer: Any = None,
        seed: int | Sequence[int] | None = None,
    ) -> None:
        sample = Sample(*rules)
        self._transforms, self._pick = sample.transforms, sample.pick if _draws(rules) else None
        asking = [rule for rule in rules if isinstance(rule, Bindable | Preparing)]
        if asking and model is None:
            raise ValueError(f"{asking[0]!r} must look at the model: say processor(…, model=model)")
        self._model = None if model is None else from_huggingface(model, tokenizer)
        self._eos = frozenset() if model is None else ending_ids(model)
        self._pad = None if model is None else stated(model, "pad_token_id")
        self._answers = self._model is not None and self._model.answers
        self._seed = seed
        self._rows: list[tuple[int, ...]] = []
        """What stood in every row when it was called last."""
        self._ready: tuple[tuple[Transform, ...], Pick | None] = ((), None)
        self._paths: list[Path] = []
        self._rngs: list[Random] = []
        self._sources: list[tuple[int, ...]] = []
        """What the encoder has read since the last text began."""
        if self._answers and self._pick is not None:
            _note_sources(model, self)
        self._last: tuple[Tensor, Tensor] | None = None
        """log p and scores of every row's next token, as they were."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(N, V) → (N, V)."""
        rows = [tuple(row) for row in input_ids.tolist()]
        parents = self._parents(rows)
        if parents is None:
            self._begin(rows, scores)
        else:
            self._follow(parents, [row[-1] for row in rows])
        self._rows = rows
        live = [place for place, path in enumerate(self._paths) if path.finish is None]
        step = said(scores, None)
        self._last = step.logp_NV, step.logp_NV
        if not live:
            return scores
        chosen = torch.tensor(live, device=scores.device)
        step, paths = step.select(chosen), [self._paths[place] for place in live]
        transforms, pick = self._ready
        scores_NV, log_norm_N = reshaped(step, paths, transforms)
        assert log_norm_N is not None
        self._last = self._last[0], self._last[1].index_copy(0, chosen, scores_NV)
        out_NV = scores_NV + log_norm_N[:, None]  # `generate` adds beams up without normalising again
        if pick is not None:
            tokens_N, _ = draw(step, paths, transforms, pick, [self._rngs[place] for place in live])
            out_NV = torch.full_like(out_NV, -torch.inf).scatter_(1, tokens_N[:, None], 0.0)
        return scores.index_copy(0, chosen, out_NV.to(scores.dtype))

    def _begin(self, rows: Sequence[tuple[int, ...]], scores: Tensor) -> None:
        prompts = [_unpadded(row, self._pad) for row in rows]
        if self._answers and self._sources and len(rows) % len(self._sources) == 0:
            each = len(rows) // len(self._sources)  # `generate` repeats a source for each of its answers
            prompts = [source for source in self._sources for _ in range(each)]
        self._sources = []
        seeds = self._seeds(len(rows), scores.device)
        job = Job(
            tuple(prompts),
            (2**31,) * len(rows),
            seeds,
            eos=self._eos,
            answers=self._answers,
            target_prefixes=tuple(row[1:] for row in rows) if self._answers else (),
        )
        self._paths = job.paths()
        self._rngs = [job.rng(path) for path in self._paths]
        transforms, pick = self._transforms, self._pick
        if self._model is not None:
            transforms = prepared(transforms, self._model, job)
            pick = pick.bind(self._model, transforms) if isinstance(pick, Bindable) else pick
        self._ready = transforms, pick

    def _parents(self, rows: Sequence[tuple[int, ...]]) -> list[int] | None:
        """Which row each was a token ago (a beam may have moved them); None where another text begins."""
        before = [row[:-1] for row in rows]
        if before == self._rows:
            return list(range(len(rows)))
        places = {row: place for place, row in enumerate(self._rows)}
        return [places[row] for row in before] if all(row in places for row in before) else None

    def _follow(self, parents: Sequence[int], tokens: Sequence[int]) -> None:
        assert self._last is not None
        logp_NV, scores_NV = self._last
        paths, rngs = [], []
        for parent, token in zip(parents, tokens, strict=True):
            path = self._paths[parent]
            if path.finish is None:
                path = replace(
                    path,
                    tokens=(*path.tokens, token),
                    logps=(*path.logps, float(logp_NV[parent, token])),
                    scores=(*path.scores, float(scores_NV[parent, token])),
                    finish="eos" if token in self._eos else None,
                )
            paths.append(path)
            rngs.append(self._rngs[parent])
        self._paths, self._rngs = paths, rngs

    def _seeds(self, count: int, device: torch.device) -> tuple[int, ...]:
        if self._seed is None:  # transformers.set_seed and torch.manual_seed decide
            return (int(torch.randint(2**31, (1,), device=device)),) * count
        return seeds_of(self._seed, count)


def _draws(rules: Sequence[Any]) -> bool:
    return bool(rules) and isinstance(rules[-1], Pick)


def _note_sources(model: Any, processor: RuleProcessor) -> None:
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
