"""Ancestral sampling: draw each token from the model's distribution, reshaped by transforms.

    y_t ~ pick( f_k(… f_1(log p(· | y_{<t})) …) )

The transforms apply in the order given, and the scores are normalised after each:

    s_0 = log p,   s_i = log_softmax(f_i(s_{i−1}))

A transform published on logits (`on_logits`, the repetition penalty) needs the log-normaliser:
z_i = s_i + log_norm_i, where `step.log_norm_N` is

    log_norm_0 = the model's,   log_norm_i = log_norm_{i−1} + logsumexp(f_i(s_{i−1}))

Each row draws from its own random stream (`decode.rng`), which does not depend on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

import torch
from torch import Tensor

from unspool.decode import fast_sampling
from unspool.decode.arguments import function_of, is_model, shown
from unspool.decode.hypothesis import Hypothesis, Job, Ranked, SearchStep
from unspool.decode.multinomial import Multinomial, draw_uniform
from unspool.decode.picks import ArgMax
from unspool.decode.search.candidates import alternatives
from unspool.decode.transforms.scores import applied
from unspool.interfaces import BindablePick, BindableTransform, CountingPick, Pick, Step, StepModel, Transform


def check_transforms(owner: str, transforms: Sequence[Any]) -> None:
    """Refuse values that are not transforms; the error names `owner`, the decoder."""
    for rule in transforms:
        fault = _fault(rule)
        if fault:
            raise TypeError(
                f"{owner}: {shown(rule)} is not a transform: {fault}. "
                "Give transforms such as Temperature(0.8), TopP(0.9) or NoRepeatNgram(3)."
            )


def _fault(rule: Any) -> str:
    if isinstance(rule, type):
        return f"it is a class, so write {rule.__name__}(…)"
    if hasattr(rule, "streams"):
        return "it is a decoder"
    if isinstance(rule, Pick):
        return "it is a pick, which only Sample accepts, as its last argument"
    if is_model(rule):
        return "it is a model"
    if not callable(rule):
        return "it is not callable"
    return "" if function_of(rule, 3) else "it is not a function of (scores, step, history)"


def bind_transforms(transforms: Sequence[Transform], model: StepModel, job: Job) -> tuple[Transform, ...]:
    """Bind the transforms that need the model or the job."""
    rules = (*job.first, *transforms)
    return tuple(rule.bind(model, job) if isinstance(rule, BindableTransform) else rule for rule in rules)


def on_logits(transforms: Sequence[Transform]) -> bool:
    """True if one of the transforms needs logits."""
    return any(getattr(rule, "on_logits", False) for rule in transforms)


def reshape(step: Step, history: Sequence[Hypothesis], transforms: Sequence[Transform]) -> Tensor:
    """Apply the transforms; the scores are normalised after each."""
    if transforms and not on_logits(transforms):
        step = replace(step, log_norm_N=None)
    return reshape_with_norm(step, history, transforms)[0]


def reshape_with_norm(
    step: Step, history: Sequence[Hypothesis], transforms: Sequence[Transform]
) -> tuple[Tensor, Tensor | None]:
    """Like `reshape`, and the log-normaliser of the result."""
    scores_NV = step.logp_NV
    for transform in transforms:
        new_NV = applied(transform, scores_NV, step, history)
        if step.log_norm_N is not None:
            step = replace(step, log_norm_N=step.log_norm_N + new_NV.logsumexp(dim=-1))
        scores_NV = torch.log_softmax(new_NV, dim=-1)
    return scores_NV, step.log_norm_N


def run_rows(
    model: StepModel, job: Job, transforms: tuple[Transform, ...], pick: Pick
) -> Iterator[SearchStep]:
    """The loop of decoders that choose one token at a time: read, reshape, pick; finished rows leave the
    batch."""
    prefill: _Prefill | None = None
    for hypotheses in job.batches():
        requests = list(dict.fromkeys(hypothesis.request for hypothesis in hypotheses))
        if prefill is None or prefill.requests != requests:
            prefill = _Prefill(model, job, requests)
        yield from _run(model, job, transforms, pick, hypotheses, prefill)


class _Prefill:
    """The first Step and the state of some prompts, each read once for all hypotheses that continue it.

    All samples of a prompt share its first Step. The state is consumed by the first batch, and computed again
    for the next one.
    """

    def __init__(self, model: StepModel, job: Job, requests: Sequence[int]) -> None:
        self.requests = requests
        self._model, self._prompts = model, [job.prompts[request] for request in requests]
        self._place = {request: row for row, request in enumerate(requests)}
        self._step, self._state = model.start(self._prompts)

    def step(self, hypotheses: Sequence[Hypothesis]) -> Step:
        """The first Step, one row for each hypothesis."""
        return self._step if self._is_one_each(hypotheses) else self._step.select(self._rows(hypotheses))

    def state(self, hypotheses: Sequence[Hypothesis]) -> Any:
        """The state, one row for each hypothesis that continues."""
        state = self._model.start(self._prompts)[1] if self._state is None else self._state
        self._state = None
        return state if self._is_one_each(hypotheses) else state.select(self._rows(hypotheses))

    def _is_one_each(self, hypotheses: Sequence[Hypothesis]) -> bool:
        return [hypothesis.request for hypothesis in hypotheses] == self.requests

    def _rows(self, hypotheses: Sequence[Hypothesis]) -> Tensor:
        places = [self._place[hypothesis.request] for hypothesis in hypotheses]
        return torch.tensor(places, device=self._step.logp_NV.device)


def _run(
    model: StepModel,
    job: Job,
    transforms: tuple[Transform, ...],
    pick: Pick,
    live: Sequence[Hypothesis],
    prefill: _Prefill,
) -> Iterator[SearchStep]:
    rngs = [job.rng(hypothesis) for hypothesis in live]
    counting = (
        pick if isinstance(pick, CountingPick) else None
    )  # once: to ask takes as long as a small product
    step, state = prefill.step(live), None
    while live:
        tokens_N, scores_N = draw(step, live, transforms, pick, rngs)
        scores = scores_N.tolist()
        ranked: Sequence[Ranked | None] = [None] * len(live)
        if job.alternatives:
            ranked = alternatives(step.logp_NV, reshape(step, live, transforms), job.alternatives)
        is_plain = not transforms and type(pick) is ArgMax  # then the scores are log p
        logps = scores if is_plain else _of(step.logp_NV, tokens_N).tolist()
        drawn = zip(live, tokens_N.tolist(), logps, scores, ranked, strict=True)
        grown = [
            hypothesis.extend(token, logp, score, job, others)
            for hypothesis, token, logp, score, others in drawn
        ]
        if counting is not None:
            grown = [
                _with_stats(hypothesis, counting, rng) for hypothesis, rng in zip(grown, rngs, strict=True)
            ]
        stay = [row for row, hypothesis in enumerate(grown) if hypothesis.finish_reason is None]
        live = [grown[row] for row in stay]
        yield SearchStep(
            tuple(live), tuple(hypothesis for hypothesis in grown if hypothesis.finish_reason is not None)
        )
        if not live:
            return
        if len(stay) < len(grown):
            rows = torch.tensor(stay, device=tokens_N.device)
            state, tokens_N = None if state is None else state.select(rows), tokens_N[rows]
            rngs = [rngs[row] for row in stay]
        step, state = model.step(prefill.state(live) if state is None else state, tokens_N)


def draw(
    step: Step,
    history: Sequence[Hypothesis],
    transforms: Sequence[Transform],
    pick: Pick,
    rngs: Sequence[Random],
) -> tuple[Tensor, Tensor]:
    """(N) tokens, and (N) the log p of each in the distribution that it was drawn from."""
    if type(pick) is Multinomial and fast_sampling.is_faster(step.logp_NV):
        plain, compiled = fast_sampling.split(transforms)
        scores_NV = reshape(step, history, plain)
        return fast_sampling.draw(scores_NV, compiled, draw_uniform(rngs, scores_NV))
    scores_NV = reshape(step, history, transforms)
    tokens_N = pick.draw(scores_NV, step, rngs)
    return tokens_N, _of(scores_NV, tokens_N)


def _with_stats(hypothesis: Hypothesis, pick: CountingPick, rng: Random) -> Hypothesis:
    return (
        hypothesis
        if hypothesis.finish_reason is None
        else replace(hypothesis, notes={**hypothesis.notes, **pick.pop_stats(rng)})
    )


def _of(scores_NV: Tensor, tokens_N: Tensor) -> Tensor:
    return scores_NV.gather(1, tokens_N[:, None]).squeeze(1)


@dataclass(frozen=True, init=False, repr=False)
class Sample:
    """Sample(Temperature(0.8), TopP(0.9)): transforms in order; the last argument may be a pick."""

    transforms: tuple[Transform, ...]
    pick: Pick

    def __init__(self, *rules: Transform | Pick) -> None:
        *first, last = rules or (Multinomial(),)
        if isinstance(last, Pick) and not isinstance(last, type):
            transforms, pick = first, last
        else:
            transforms, pick = [*first, last], Multinomial()
        check_transforms("Sample", transforms)
        object.__setattr__(self, "transforms", tuple(transforms))
        object.__setattr__(self, "pick", pick)

    def __repr__(self) -> str:
        rules = [*self.transforms, *([] if self.pick == Multinomial() else [self.pick])]
        return f"Sample({', '.join(map(repr, rules))})"

    streams: ClassVar[bool] = True
    """A drawn token does not change later."""

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        transforms = bind_transforms(self.transforms, model, job)
        pick = self.pick.bind(model, transforms) if isinstance(self.pick, BindablePick) else self.pick
        return run_rows(model, job, transforms, pick)


@dataclass(frozen=True, init=False, repr=False)
class Greedy:
    """Greedy(): greedy search, the most probable token at every step.

        y_t = argmax_i log p(i | y_{<t})

    Transforms such as penalties may reshape the scores first.
    """

    transforms: tuple[Transform, ...]

    def __init__(self, *transforms: Transform) -> None:
        check_transforms("Greedy", transforms)
        object.__setattr__(self, "transforms", transforms)

    def __repr__(self) -> str:
        return f"Greedy({', '.join(map(repr, self.transforms))})"

    streams: ClassVar[bool] = True
    """A chosen token does not change later."""

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        return run_rows(model, job, bind_transforms(self.transforms, model, job), ArgMax())
