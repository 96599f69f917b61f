"""Beam sampling: a beam whose places are drawn without replacement instead of given to the best.

    c_1, c_2, … ~ exp( Σ_{i<t} s(y_i) + s(v) )   without replacement,   c = y ∘ v,  y ∈ Y_{t−1},  v ∈ V

At every step the continuations of all live hypotheses of a request are drawn one after the other, each with
a probability proportional to that of its whole text so far, by adding Gumbel noise to their sums and taking
the highest. They take the places of the beam in the order drawn; the answers are the n best of the pool.
Width 1 is ancestral sampling.
Kool, van Hoof & Welling 2019, §2 (the Gumbel-top-k trick); the scheme is that of Hugging Face's
`generate(num_beams=…, do_sample=True)`.
papers.bib: kool2019stochastic

A request's noise is its own random stream (`decode.rng`): the rest of the batch does not change it.
Differs from Hugging Face, where of all that were drawn the best w live on: here the first w drawn do, so that
the beam is a sample. It is not a sample of whole texts: for this, see `StochasticBeam`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unspool.decode.job import Frontier, Job
from unspool.decode.rng import numpy_generator
from unspool.decode.search.beam_loop import View, run_beams
from unspool.decode.search.beam_options import BeamSearch
from unspool.decode.search.beam_state import BeamState
from unspool.decode.search.candidates import propose
from unspool.decode.search.gumbel import perturb
from unspool.decode.search.tree import Tree
from unspool.protocols import StepModel


@dataclass(frozen=True, init=False, repr=False)
class BeamSample(BeamSearch):
    """BeamSample(4, Temperature(0.8)): the best of what a drawn beam finds, by the request's stream."""

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]:
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
