"""Ancestral sampling: draw each token from the model's distribution, reshaped by transforms.

    y_t ~ pick( f_k(… f_1(log p(· | y_{<t})) …) )

The transforms apply in the order written; between two of them the scores are normalised again. Each
row draws from its own random stream (`decode.rng`): the rest of the batch and its order do not change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from unspool.decode import fast_sampling
from unspool.decode.arguments import function_of, is_model, shown
from unspool.decode.hypothesis import Hypothesis, Job, Ranked, SearchStep
from unspool.decode.multinomial import Multinomial, draw_uniform
from unspool.decode.picks import ArgMax
from unspool.decode.search.candidates import alternatives
from unspool.decode.transforms.scores import applied
from unspool.interfaces import Bindable, Counting, Pick, Preparing, Step, StepModel, Transform

# A search's transforms: checked when the search is made, told of the model and the job when it begins, and
# applied one after the other at every step.
#
#     s_0 = log p,   s_i = log_softmax(f_i(s_{i−1}))
#
# Scores are normalised between two transforms, so that each is given a distribution. A rule that is published
# on logits (`on_logits`, the repetition penalty) needs the constant that normalising takes away:
# `step.log_norm_N` turns the scores that come with it into logits again, z_i = s_i + log_norm_i, where
#
#     log_norm_0 = the model's own,   log_norm_i = log_norm_{i−1} + logsumexp(f_i(s_{i−1}))


def check_transforms(owner: str, transforms: Sequence[Any]) -> None:
    """Refuse what is no transform, in the words of the search that was given it."""
    for rule in transforms:
        fault = _fault(rule)
        if fault:
            raise TypeError(
                f"{owner}: {shown(rule)} cannot stand among the transforms: {fault}. "
                "Give transforms such as Temperature(0.8), TopP(0.9) or NoRepeatNgram(3)."
            )


def _fault(rule: Any) -> str:
    if isinstance(rule, type):
        return f"it is a class, so write {rule.__name__}(…)"
    if hasattr(rule, "streams"):
        return "it is a search of its own"
    if isinstance(rule, Pick):
        return "it is a pick, and only Sample takes one, as its last rule"
    if is_model(rule):
        return "it is a model"
    if not callable(rule):
        return "it is not callable"
    return "" if function_of(rule, 3) else "it is not a function of (scores, step, history)"


def prepared(transforms: Sequence[Transform], model: StepModel, job: Job) -> tuple[Transform, ...]:
    """The transforms for one job: those that must know the model or the job have looked at them."""
    rules = (*job.first, *transforms)
    return tuple(rule.prepare(model, job) if isinstance(rule, Preparing) else rule for rule in rules)


def on_logits(transforms: Sequence[Transform]) -> bool:
    """Whether one of them is defined on logits, for which normalised scores do not suffice."""
    return any(getattr(rule, "on_logits", False) for rule in transforms)


def reshape(step: Step, history: Sequence[Hypothesis], transforms: Sequence[Transform]) -> Tensor:
    """The scores that are drawn from: normalised before and after every transform."""
    if transforms and not on_logits(transforms):
        step = replace(step, log_norm_N=None)
    return reshaped(step, history, transforms)[0]


def reshaped(
    step: Step, history: Sequence[Hypothesis], transforms: Sequence[Transform]
) -> tuple[Tensor, Tensor | None]:
    """The same, and log_norm_k, which makes logits of them again, as the transforms have left these."""
    scores_NV = step.logp_NV
    for transform in transforms:
        moved_NV = applied(transform, scores_NV, step, history)
        if step.log_norm_N is not None:
            step = replace(step, log_norm_N=step.log_norm_N + moved_NV.logsumexp(dim=-1))
        scores_NV = torch.log_softmax(moved_NV, dim=-1)
    return scores_NV, step.log_norm_N


# The loop that all searches share which choose one token at a time and stay with it: read, reshape, pick.
#
#     y_t ~ pick( f_k(… f_1(log p(· | y_{<t})) …) )
#
# Each row draws from its own random stream (`decode.rng`): the rest of the batch and its order do not change
# it. Rows that end leave the batch.


def run_rows(
    model: StepModel, job: Job, transforms: tuple[Transform, ...], pick: Pick
) -> Iterator[SearchStep]:
    """Grow every path by one token a step; finished rows leave the batch."""
    beginning: _Beginning | None = None
    for paths in job.batches():
        requests = list(dict.fromkeys(path.request for path in paths))
        if beginning is None or beginning.requests != requests:
            beginning = _Beginning(model, job, requests)
        yield from _run(model, job, transforms, pick, paths, beginning)


class _Beginning:
    """What a model says after some prompts, each read once for all the paths that continue it.

    Thousands of samples of one prompt share its first Step from batch to batch. A state, which is used up by
    those who go on from it, is copied to as many rows as do go on, and made anew for the next batch.
    """

    def __init__(self, model: StepModel, job: Job, requests: Sequence[int]) -> None:
        self.requests = requests
        self._model, self._prompts = model, [job.prompts[request] for request in requests]
        self._place = {request: row for row, request in enumerate(requests)}
        self._step, self._state = model.start(self._prompts)

    def step(self, paths: Sequence[Hypothesis]) -> Step:
        """The first Step of each path."""
        return self._step if self._one_each(paths) else self._step.select(self._rows(paths))

    def state(self, paths: Sequence[Hypothesis]) -> Any:
        """The state of those of the paths that go on."""
        state = self._model.start(self._prompts)[1] if self._state is None else self._state
        self._state = None
        return state if self._one_each(paths) else state.select(self._rows(paths))

    def _one_each(self, paths: Sequence[Hypothesis]) -> bool:
        return [path.request for path in paths] == self.requests

    def _rows(self, paths: Sequence[Hypothesis]) -> Tensor:
        places = [self._place[path.request] for path in paths]
        return torch.tensor(places, device=self._step.logp_NV.device)


def _run(
    model: StepModel,
    job: Job,
    transforms: tuple[Transform, ...],
    pick: Pick,
    live: Sequence[Hypothesis],
    beginning: _Beginning,
) -> Iterator[SearchStep]:
    rngs = [job.rng(path) for path in live]
    counting = pick if isinstance(pick, Counting) else None  # once: to ask takes as long as a small product
    step, state = beginning.step(live), None
    while live:
        tokens_N, scores_N = draw(step, live, transforms, pick, rngs)
        scores = scores_N.tolist()
        ranked: Sequence[Ranked | None] = [None] * len(live)
        if job.alternatives:
            ranked = alternatives(step.logp_NV, reshape(step, live, transforms), job.alternatives)
        plain = not transforms and type(pick) is ArgMax  # then the scores are log p
        logps = scores if plain else _of(step.logp_NV, tokens_N).tolist()
        drawn = zip(live, tokens_N.tolist(), logps, scores, ranked, strict=True)
        grown = [path.extend(token, logp, score, job, others) for path, token, logp, score, others in drawn]
        if counting is not None:
            grown = [_counted(path, counting, rng) for path, rng in zip(grown, rngs, strict=True)]
        stay = [row for row, path in enumerate(grown) if path.finish_reason is None]
        live = [grown[row] for row in stay]
        yield SearchStep(tuple(live), tuple(path for path in grown if path.finish_reason is not None))
        if not live:
            return
        if len(stay) < len(grown):
            rows = torch.tensor(stay, device=tokens_N.device)
            state, tokens_N = None if state is None else state.select(rows), tokens_N[rows]
            rngs = [rngs[row] for row in stay]
        step, state = model.step(beginning.state(live) if state is None else state, tokens_N)


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


def _counted(path: Hypothesis, pick: Counting, rng: Random) -> Hypothesis:
    return path if path.finish_reason is None else replace(path, notes={**path.notes, **pick.counted(rng)})


def _of(scores_NV: Tensor, tokens_N: Tensor) -> Tensor:
    return scores_NV.gather(1, tokens_N[:, None]).squeeze(1)


@dataclass(frozen=True, init=False, repr=False)
class Sample:
    """Sample(Temperature(0.8), TopP(0.9)): transforms in order; a pick may stand last."""

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

    @property
    def streams(self) -> bool:
        """A drawn token stays."""
        return True

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        """Yield a frontier for each token drawn."""
        transforms = prepared(self.transforms, model, job)
        pick = self.pick.bind(model, transforms) if isinstance(self.pick, Bindable) else self.pick
        return run_rows(model, job, transforms, pick)


@dataclass(frozen=True, init=False, repr=False)
class Greedy:
    """Greedy(): the same text every time.

    Greedy search: the most probable token at every step.

        y_t = argmax_i log p(i | y_{<t})

    Transforms (penalties, say) may reshape the scores first.
    """

    transforms: tuple[Transform, ...]

    def __init__(self, *transforms: Transform) -> None:
        check_transforms("Greedy", transforms)
        object.__setattr__(self, "transforms", transforms)

    def __repr__(self) -> str:
        return f"Greedy({', '.join(map(repr, self.transforms))})"

    @property
    def streams(self) -> bool:
        """A chosen token stays."""
        return True

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        """Yield a frontier for each token chosen."""
        return run_rows(model, job, prepared(self.transforms, model, job), ArgMax())
