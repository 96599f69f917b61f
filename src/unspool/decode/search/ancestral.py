"""Ancestral sampling: draw each token from the model's distribution, reshaped by transforms.

    y_t ~ pick( f_k(… f_1(log p(· | y_{<t})) …) )

The transforms apply in the order written; between two of them the scores are normalised again. A row's
randomness depends on its own seed and sample number only, so that neither batch-mates nor order change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import torch
from torch import Tensor

from unspool.decode import shortlist
from unspool.decode.picks.multinomial import Multinomial, roll
from unspool.decode.search.alternatives import alternatives
from unspool.protocols import (
    Bindable,
    Counting,
    Frontier,
    Job,
    Path,
    Pick,
    Ranked,
    Step,
    StepModel,
    Transform,
)


@dataclass(frozen=True, init=False, repr=False)
class Sample:
    """Sample(Temperature(0.8), TopP(0.9)): transforms in order; a pick may stand last."""

    transforms: tuple[Transform, ...]
    pick: Pick

    def __init__(self, *rules: Transform | Pick) -> None:
        *first, last = rules or (Multinomial(),)
        if isinstance(last, Pick):
            transforms, pick = first, last
        else:
            transforms, pick = [*first, last], Multinomial()
        for rule in transforms:
            if isinstance(rule, Pick) or not callable(rule):
                raise TypeError(
                    f"Sample({', '.join(map(repr, rules))}): {rule!r} cannot stand there. "
                    "Give transforms, then at most one pick at the end."
                )
        object.__setattr__(self, "transforms", tuple(transforms))
        object.__setattr__(self, "pick", pick)

    def __repr__(self) -> str:
        rules = [*self.transforms, *([] if self.pick == Multinomial() else [self.pick])]
        return f"Sample({', '.join(map(repr, rules))})"

    @property
    def streams(self) -> bool:
        """A drawn token stays."""
        return True

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]:
        """Yield a frontier for each token drawn."""
        pick = self.pick.bind(model, self.transforms) if isinstance(self.pick, Bindable) else self.pick
        return walk(model, job, self.transforms, pick)


def walk(model: StepModel, job: Job, transforms: tuple[Transform, ...], pick: Pick) -> Iterator[Frontier]:
    """Grow every path by one token a step; finished rows leave the batch."""
    live = job.paths()
    dice = [Random(f"{job.seeds[path.request]}/{path.sample}") for path in live]
    step, state = model.start(job.prompts)
    if job.n > 1:
        rows = torch.arange(len(job.prompts), device=step.logp_NV.device).repeat_interleave(job.n)
        step, state = step.select(rows), state.select(rows)
    while live:
        tokens_N, scores_N = draw(step, live, transforms, pick, dice)
        ranked: Sequence[Ranked | None] = [None] * len(live)
        if job.alternatives:
            ranked = alternatives(step.logp_NV, reshape(step, live, transforms), job.alternatives)
        drawn = zip(
            live,
            tokens_N.tolist(),
            _of(step.logp_NV, tokens_N).tolist(),
            scores_N.tolist(),
            ranked,
            strict=True,
        )
        grown = [path.extend(token, logp, score, job, others) for path, token, logp, score, others in drawn]
        if isinstance(pick, Counting):
            grown = [_counted(path, pick, die) for path, die in zip(grown, dice, strict=True)]
        stay = [row for row, path in enumerate(grown) if path.finish is None]
        live = [grown[row] for row in stay]
        yield Frontier(tuple(live), tuple(path for path in grown if path.finish is not None))
        if 0 < len(stay) < len(grown):
            rows = torch.tensor(stay, device=tokens_N.device)
            state, tokens_N = state.select(rows), tokens_N[rows]
            dice = [dice[row] for row in stay]
        if live:
            step, state = model.step(state, tokens_N)


def draw(
    step: Step, history: Sequence[Path], transforms: Sequence[Transform], pick: Pick, dice: Sequence[Random]
) -> tuple[Tensor, Tensor]:
    """(N) tokens, and (N) the log p of each in the distribution that it was drawn from."""
    if pick == Multinomial() and shortlist.pays(step.logp_NV, transforms):
        return shortlist.draw(step, history, transforms, roll(dice, step.logp_NV))
    scores_NV = reshape(step, history, transforms)
    tokens_N = pick.draw(scores_NV, step, dice)
    return tokens_N, _of(scores_NV, tokens_N)


def reshape(step: Step, history: Sequence[Path], transforms: Sequence[Transform]) -> Tensor:
    """The scores that are drawn from: normalised before and after every transform."""
    scores_NV = step.logp_NV
    for transform in transforms:
        scores_NV = torch.log_softmax(transform(scores_NV, step, history), dim=-1)
    return scores_NV


def _counted(path: Path, pick: Counting, die: Random) -> Path:
    return path if path.finish is None else replace(path, notes={**path.notes, **pick.counted(die)})


def _of(scores_NV: Tensor, tokens_N: Tensor) -> Tensor:
    return scores_NV.gather(1, tokens_N[:, None]).squeeze(1)
