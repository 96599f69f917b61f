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

import numpy as np
import torch
from torch import Tensor

from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.rng import numpy_generator
from unspool.decode.search.beam import View, run_beams
from unspool.decode.search.beam_state import BeamOptions, BeamSearch, BeamState, Tree
from unspool.decode.search.candidates import Candidate, propose
from unspool.interfaces import StepModel, Transform

# Gumbel noise: the highest of perturbed log-probabilities are a sample without replacement.
#
#     G = φ − log(−log u),   u uniform on (0, 1)        the k highest G: k draws from exp φ, none twice
#
#     G' = −log( e^{−T} − e^{−Z} + e^{−G} ),  Z = max G      the same noise, told that its maximum is T
#
# Kool, van Hoof & Welling 2019, Algorithm 1 (G' here in its numerically stable form; T is `maximum`).
# papers.bib: kool2019stochastic
#
# A request's noise comes from its own random stream, row after row: the rest of the batch does not change it.


def perturb(scores_NV: Tensor, generators: Sequence[np.random.Generator], rows: Sequence[int]) -> Tensor:
    """Scores plus noise, in double precision; generator i serves the next rows[i] rows."""
    vocabulary = scores_NV.shape[1]
    u = np.concatenate([die.random((n, vocabulary)) for die, n in zip(generators, rows, strict=True)])
    u_NV = torch.from_numpy(u).to(scores_NV.device)
    return scores_NV - (-u_NV.log_()).log_()


def standard(generator: np.random.Generator) -> float:
    """One draw of the noise itself."""
    return float(generator.gumbel())


def conditioned(keys_NK: Tensor, maximum_N: Tensor) -> Tensor:
    """The highest perturbed scores of every row, moved so that the first is maximum_N; the order is kept."""
    top_N1, maximum_N1 = keys_NK.amax(dim=-1, keepdim=True), maximum_N[:, None]
    below_NK = maximum_N1 - keys_NK + torch.log1p(-torch.exp(keys_NK - top_N1))
    moved_NK = maximum_N1 - below_NK.clamp(min=0) - torch.log1p(torch.exp(-below_NK.abs()))
    return moved_NK.masked_fill(keys_NK == -torch.inf, -torch.inf)


@dataclass(frozen=True, init=False, repr=False)
class StochasticBeam(BeamSearch):
    """StochasticBeam(8, Temperature(0.7)): eight texts, no two alike, by the request's random stream."""

    def __init__(self, width: int, *transforms: Transform) -> None:
        # No options: ended hypotheses are ranked by G, and it stops when all of its places have ended.
        super().__init__(width, *transforms)

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
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
            if path.finish_reason is not None:
                self.end(path, candidate)
        alive = [(candidate, path) for candidate, path in grown if path.finish_reason is None]
        self.live, self.keys = (
            [self.grown(path, candidate) for candidate, path in alive],
            [candidate.key for candidate, _ in alive],
        )
        return taken

    def worth(self, path: Hypothesis, candidate: Candidate) -> float:  # noqa: ARG002
        """G of an ended hypothesis."""
        return candidate.key


@dataclass(frozen=True, init=False, repr=False)
class BeamSample(BeamSearch):
    """BeamSample(4, Temperature(0.8)): the best of what a drawn beam finds, by the request's stream.

    Beam sampling: a beam whose places are drawn without replacement instead of given to the best.

        c_1, c_2, … ~ exp( Σ_{i<t} s(y_i) + s(v) )   without replacement,   c = y ∘ v,  y ∈ Y_{t−1},  v ∈ V

    At every step the continuations of all live hypotheses of a request are drawn one after the other, each
    with a probability proportional to that of its whole text so far, by adding Gumbel noise to their sums and
    taking the highest. They take the places of the beam in the order drawn; the answers are the n best of the
    pool. Width 1 is ancestral sampling. Kool, van Hoof & Welling 2019, §2 (the Gumbel-top-k trick); the
    scheme is that of Hugging Face's `generate(num_beams=…, do_sample=True)`. papers.bib: kool2019stochastic

    A request's noise is its own random stream (`decode.rng`): the rest of the batch does not change it.
    Differs from Hugging Face, where of all that were drawn the best w live on: here the first w drawn do, so
    that the beam is a sample. It is not a sample of whole texts: for this, see `StochasticBeam`.
    """

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        """Yield a frontier for each step; a request's texts come when its beam has stopped."""
        options = self.options.prepared(model, job)
        requests = [[BeamState(options, job, request, Tree())] for request in range(len(job.prompts))]
        rngs = [numpy_generator(job.stream_key(request)) for request in range(len(job.prompts))]
        count = options.candidates(job.ends)

        def grow(view: View, beams: Sequence[BeamState]) -> None:
            sums = [beam.totals for beam in beams]
            keys_NV = perturb(
                view.scores_NV, [rngs[beam.request] for beam in beams], [len(each) for each in sums]
            )
            found = propose(
                sums, count, view.step.logp_NV, view.scores_NV, keys_NV=keys_NV, covered_N=view.covered_N
            )
            for beam, candidates in zip(beams, found, strict=True):
                beam.take(candidates)

        return run_beams(model, job, requests, grow)
