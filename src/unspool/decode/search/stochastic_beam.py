"""Stochastic beam search: w different texts drawn from the model, without replacement.

    G_y = φ_y + Gumbel noise,   φ_y = Σ_t log p(y_t | y_{<t})       the w whole texts with the highest G

Every text of the model has its own noise, and the w highest G are a sample without replacement of size w. The
tree of texts is walked from the top: a prefix carries the highest G of all that begins with it, its
continuations get noise told that their maximum is just that, and only the w highest at every step can lead to
one of the w highest texts. A hypothesis that ends keeps its place and its G. The n texts come in the order
drawn, so that they are a sample of size n; `total` is G, and `logps` sum to φ.
Kool, van Hoof & Welling 2019, Algorithm 1.
papers.bib: kool2019stochastic

Transforms reshape log p, and the sample is then one from the reshaped model. A request's noise is its
own random stream (`decode.rng`). A model's own score (contrastive decoding) is no distribution and is not
used.
Differs from the paper: the empty text's G is drawn instead of being set to 0. The sample is the same, and the
G of its texts are then those of the whole model, as importance weights need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from unspool.decode.job import Frontier, Job
from unspool.decode.path import Path
from unspool.decode.rng import numpy_generator
from unspool.decode.search.beam_loop import View, run_beams
from unspool.decode.search.beam_options import BeamOptions, BeamSearch
from unspool.decode.search.beam_state import BeamState
from unspool.decode.search.candidates import Candidate, propose
from unspool.decode.search.gumbel import conditioned, perturb, standard
from unspool.decode.search.tree import Tree
from unspool.protocols import StepModel, Transform


@dataclass(frozen=True, init=False, repr=False)
class StochasticBeam(BeamSearch):
    """StochasticBeam(8, Temperature(0.7)): eight texts, no two alike, by the request's random stream."""

    def __init__(self, width: int, *transforms: Transform) -> None:
        # No options: ended hypotheses are ranked by G, and it stops when all of its places have ended.
        super().__init__(width, *transforms)

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]:
        """Yield a frontier for each step; a request's texts come when all of its places have ended."""
        options = self.options.prepared(model, job)
        rngs = [numpy_generator(job.stream_key(request)) for request in range(len(job.prompts))]
        requests = [[_Draw(options, job, request, standard(rng))] for request, rng in enumerate(rngs)]

        def grow(view: View, draws: Sequence[_Draw]) -> None:
            step, scores_NV = view.step, view.scores_NV
            sums = [draw.totals for draw in draws]
            rows = [len(each) for each in sums]
            like = torch.empty(0, dtype=torch.float64, device=scores_NV.device)
            total_N = like.new_tensor([total for each in sums for total in each])
            parent_N = like.new_tensor([key for draw in draws for key in draw.keys])
            keys_NV = perturb(scores_NV, [rngs[draw.request] for draw in draws], rows)
            found = propose(
                sums,
                self.options.width,
                step.logp_NV,
                scores_NV,
                keys_NV=keys_NV,
                moved=lambda keys_NK: conditioned(keys_NK, parent_N - total_N),
            )
            for draw, candidates in zip(draws, found, strict=True):
                draw.take(candidates)

        return run_beams(model, job, requests, grow, scored=False)


class _Draw(BeamState):
    """A beam in which live and ended hypotheses share the places, by their G."""

    def __init__(self, options: BeamOptions, job: Job, request: int, key: float) -> None:
        super().__init__(options, job, request, Tree())
        self.keys = [key]
        """G of the live hypotheses."""

    def take(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Give the places to the highest G, those that ended earlier included."""
        taken: list[Candidate] = []
        for candidate in candidates:
            before = sum(ended.score >= candidate.key for ended in self.pool)
            if before + len(taken) >= self.options.width:
                break
            taken.append(candidate)
        del self.pool[self.options.width - len(taken) :]
        grown = [(candidate, self.extended(candidate)) for candidate in taken]
        for candidate, path in grown:
            if path.finish is not None:
                self.end(path, candidate)
        alive = [(candidate, path) for candidate, path in grown if path.finish is None]
        self.live, self.keys = (
            [self.grown(path, candidate) for candidate, path in alive],
            [candidate.key for candidate, _ in alive],
        )
        return taken

    def worth(self, path: Path, candidate: Candidate) -> float:  # noqa: ARG002
        """G of an ended hypothesis."""
        return candidate.key
