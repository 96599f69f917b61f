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

from unspool.arguments import function_of, set_fields, shown
from unspool.decode import fast_sampling
from unspool.decode.hypothesis import Hypothesis, Job, Ranked, SearchStep, split_ended
from unspool.decode.multinomial import Multinomial, draw_uniform
from unspool.decode.picks import ArgMax
from unspool.decode.search.candidates import alternatives
from unspool.decode.transforms.scores import applied
from unspool.interfaces import BindablePick, BindableTransform, CountingPick, Pick, Step, StepModel, Transform


def check_transforms(owner: str, transforms: Sequence[Any]) -> None:
    """Refuse values that are not transforms; the error names `owner`, the decoder."""
    for rule in transforms:
        if isinstance(rule, type):
            fault = f"it is a class, so write {rule.__name__}(…)"
        elif isinstance(rule, Pick):
            fault = "it is a pick, which only Sample accepts, as its last argument"
        else:
            fault = "" if function_of(rule, 3) else "it is not a function of (scores, step, history)"
        if fault:
            raise TypeError(
                f"{owner}: {shown(rule)} is not a transform: {fault}. "
                "Give transforms such as Temperature(0.8), TopP(0.9) or NoRepeatNgram(3)."
            )


def bind_transforms(transforms: Sequence[Transform], model: StepModel, job: Job) -> tuple[Transform, ...]:
    """Bind the transforms that need the model or the job."""
    rules = (*job.first, *transforms)
    return tuple(rule.bind(model, job) if isinstance(rule, BindableTransform) else rule for rule in rules)


def bind_rules(
    transforms: Sequence[Transform], pick: Pick, model: StepModel, job: Job
) -> tuple[tuple[Transform, ...], Pick]:
    """Bind the transforms and the pick to one model and job."""
    rules = bind_transforms(transforms, model, job)
    return rules, pick.bind(model, rules) if isinstance(pick, BindablePick) else pick


def on_logits(transforms: Sequence[Transform]) -> bool:
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


def decode_rows(
    model: StepModel, job: Job, transforms: tuple[Transform, ...], pick: Pick
) -> Iterator[SearchStep]:
    """The loop of decoders that choose token by token: read, reshape, pick; finished rows leave the batch."""
    requests: list[int] = []
    for hypotheses in job.batches():
        before, requests = requests, list(dict.fromkeys(hypothesis.request for hypothesis in hypotheses))
        if requests != before:
            prefill = PromptStart(model, [job.prompts[request] for request in requests])
        yield from _decode_batch(job, transforms, pick, hypotheses, prefill, requests)


class PromptStart:
    """The first Step and the state of some prompts, which are read on first use.

    All samples of a prompt share its first Step. The state is consumed by the first of them, and computed
    again for the next one.
    """

    def __init__(self, model: StepModel, prompts: Sequence[Sequence[int]]) -> None:
        self.model, self._prompts = model, prompts
        self._step: Step | None = None
        self._state: Any = None

    @property
    def step(self) -> Step:
        if self._step is None:
            self._step, self._state = self.model.start(self._prompts)
        return self._step

    def take_state(self) -> Any:
        """A state that no row has used."""
        state = self.model.start(self._prompts)[1] if self._state is None else self._state
        self._state = None
        return state


def _rows_of(requests: Sequence[int], live: Sequence[Hypothesis], device: torch.device) -> Tensor | None:
    """The row of each hypothesis in the prefill of some requests; None if there is one for each, in order."""
    rows = [requests.index(hypothesis.request) for hypothesis in live]
    return None if rows == list(range(len(requests))) else torch.tensor(rows, device=device)


def _decode_batch(
    job: Job,
    transforms: tuple[Transform, ...],
    pick: Pick,
    live: Sequence[Hypothesis],
    prefill: PromptStart,
    requests: Sequence[int],
) -> Iterator[SearchStep]:
    rngs = [job.rng(hypothesis) for hypothesis in live]
    counting = pick if isinstance(pick, CountingPick) else None
    step, state, device = prefill.step, None, prefill.step.logp_NV.device
    rows = _rows_of(requests, live, device)
    step = step if rows is None else step.select(rows)
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
                hypothesis
                if hypothesis.finish_reason is None
                else replace(hypothesis, notes={**hypothesis.notes, **counting.pop_stats(rng)})
                for hypothesis, rng in zip(grown, rngs, strict=True)
            ]
        stay = [row for row, hypothesis in enumerate(grown) if hypothesis.finish_reason is None]
        live = [grown[row] for row in stay]
        yield split_ended(grown)
        if not live:
            return
        if len(stay) < len(grown):
            rows = torch.tensor(stay, device=device)
            state, tokens_N = None if state is None else state.select(rows), tokens_N[rows]
            rngs = [rngs[row] for row in stay]
        if state is None:
            rows, state = _rows_of(requests, live, device), prefill.take_state()
            state = state if rows is None else state.select(rows)
        step, state = prefill.model.step(state, tokens_N)


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


def _of(scores_NV: Tensor, tokens_N: Tensor) -> Tensor:
    return scores_NV.gather(1, tokens_N[:, None]).squeeze(1)


@dataclass(frozen=True, init=False, repr=False)
class TokenDecoder:
    """Base class of decoders that choose token by token: transforms, and a pick that draws the token."""

    transforms: tuple[Transform, ...]
    pick: Pick

    streams: ClassVar[bool] = True

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        return decode_rows(model, job, *bind_rules(self.transforms, self.pick, model, job))


@dataclass(frozen=True, init=False, repr=False)
class Sample(TokenDecoder):
    """Draw each token from the model's distribution: Sample(Temperature(0.8), TopP(0.9)).

    The arguments are transforms, which apply in the order given. The last may be a pick, such as
    BasisAware(0.1), which draws the token in its own way.
    """

    def __init__(self, *rules: Transform | Pick) -> None:
        *first, last = rules or (Multinomial(),)
        if isinstance(last, Pick) and not isinstance(last, type):
            transforms, pick = first, last
        else:
            transforms, pick = [*first, last], Multinomial()
        check_transforms("Sample", transforms)
        set_fields(self, transforms=tuple(transforms), pick=pick)

    def __repr__(self) -> str:
        rules = [*self.transforms, *([] if self.pick == Multinomial() else [self.pick])]
        return f"Sample({', '.join(map(repr, rules))})"


@dataclass(frozen=True, init=False, repr=False)
class Greedy(TokenDecoder):
    """Greedy(): greedy search, the most probable token at every step.

        y_t = argmax_i log p(i | y_{<t})

    Transforms such as penalties may reshape the scores first.
    """

    def __init__(self, *transforms: Transform) -> None:
        check_transforms("Greedy", transforms)
        set_fields(self, transforms=transforms, pick=ArgMax())

    def __repr__(self) -> str:
        return f"Greedy({', '.join(map(repr, self.transforms))})"
