"""Stochastic beam search: w different texts drawn from the model, without replacement.

    G_y = φ_y + Gumbel noise,   φ_y = Σ_t log p(y_t | y_{<t})       the w whole texts with the highest G

Every text has its own noise, and the w texts with the highest G are a sample of size w without replacement.
The tree of texts is searched from the root: a prefix has the highest G of all texts that begin with it, the
noise of its continuations is conditioned on that maximum, and only the w highest prefixes of a step can lead
to one of the w highest texts. A finished hypothesis keeps its place and its G. The n texts are in the order
drawn, so that they are a sample of size n; `total` is G, and `logps` sum to φ.
Kool, van Hoof & Welling 2019, Algorithm 1 (papers.bib: kool2019stochastic).

Gumbel noise and its conditioning, in the numerically stable form of the paper (T is `maximum`):

    G = φ − log(−log u),   u uniform on (0, 1)        the k highest G: k draws from exp φ, none twice
    G' = −log( e^{−T} − e^{−Z} + e^{−G} ),  Z = max G      the same noise, given that its maximum is T

Transforms reshape log p; the sample is then from the reshaped model. The noise of a request is drawn from its
random stream (`decode.rng`). The score of a contrast of models is not a distribution and is not used.
Differs from the paper: the G of the empty text is drawn, not 0. The sample is the same, and the G of its
texts are those of the whole model, as importance weights need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.rng import numpy_generator
from unspool.decode.search.beam import BeamScores, grow, run_beams
from unspool.decode.search.beam_state import BeamOptions, BeamSearch, BeamState
from unspool.decode.search.candidates import Candidate
from unspool.interfaces import StepModel, Transform


def add_gumbel(scores_NV: Tensor, generators: Sequence[np.random.Generator], rows: Sequence[int]) -> Tensor:
    """Scores plus Gumbel noise, in float64; generators[i] draws the noise of the next rows[i] rows."""
    vocabulary = scores_NV.shape[1]
    u = np.concatenate([rng.random((n, vocabulary)) for rng, n in zip(generators, rows, strict=True)])
    u_NV = torch.from_numpy(u).to(scores_NV.device)
    return scores_NV - (-u_NV.log_()).log_()


def perturb(inputs: BeamScores, beams: Sequence[BeamState], rngs: Sequence[np.random.Generator]) -> Tensor:
    """The scores of all beams with Gumbel noise; rngs[i] is that of request i."""
    return add_gumbel(
        inputs.scores_NV, [rngs[beam.request] for beam in beams], [len(beam.live) for beam in beams]
    )


def condition_on_maximum(keys_NK: Tensor, maximum_N: Tensor) -> Tensor:
    """Shift the perturbed scores of every row so that the highest is maximum_N; the order stays."""
    top_N1, maximum_N1 = keys_NK.amax(dim=-1, keepdim=True), maximum_N[:, None]
    below_NK = maximum_N1 - keys_NK + torch.log1p(-torch.exp(keys_NK - top_N1))
    shifted_NK = maximum_N1 - below_NK.clamp(min=0) - torch.log1p(torch.exp(-below_NK.abs()))
    return shifted_NK.masked_fill(keys_NK == -torch.inf, -torch.inf)


@dataclass(frozen=True, init=False, repr=False)
class StochasticBeam(BeamSearch):
    """StochasticBeam(8, Temperature(0.7)): sample eight different texts without replacement."""

    def __init__(self, width: int, *transforms: Transform) -> None:
        # No other options: G ranks finished hypotheses, and the search stops when all `width` have finished.
        super().__init__(width, *transforms)

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        options = self.options.bind(model, job)
        rngs = [numpy_generator(job.stream_key(request)) for request in range(len(job.prompts))]
        requests = [[_GumbelBeam(options, job, request, rng.gumbel())] for request, rng in enumerate(rngs)]

        def grow_conditioned(inputs: BeamScores, beams: Sequence[_GumbelBeam]) -> None:
            pairs = [pair for beam in beams for pair in zip(beam.keys, beam.totals, strict=True)]
            above_N = inputs.scores_NV.new_tensor([key - total for key, total in pairs], dtype=torch.float64)
            keys_NV = perturb(inputs, beams, rngs)
            grow(inputs, beams, keys_NV, lambda keys_NK: condition_on_maximum(keys_NK, above_N))

        return run_beams(model, job, requests, grow_conditioned, use_model_scores=False)


class _GumbelBeam(BeamState):
    """A beam whose live and finished hypotheses share the width, ranked by G."""

    def __init__(self, options: BeamOptions, job: Job, request: int, key: float) -> None:
        super().__init__(options, job, request)
        self.keys = [key]
        """G of the live hypotheses."""

    @property
    def candidates(self) -> int:
        return self.options.width

    def take(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Keep the hypotheses with the highest G, finished ones included."""
        taken: list[Candidate] = []
        for candidate in candidates:
            before = sum(ended.score >= candidate.key for ended in self.pool)
            if before + len(taken) >= self.options.width:
                break
            taken.append(candidate)
        del self.pool[self.options.width - len(taken) :]
        grown = [(candidate, self.extend(candidate)) for candidate in taken]
        for candidate, hypothesis in grown:
            if hypothesis.finish_reason is not None:
                self.end(hypothesis, candidate)
        alive = [
            (candidate, hypothesis) for candidate, hypothesis in grown if hypothesis.finish_reason is None
        ]
        self.live = [self.live_item(hypothesis, candidate) for candidate, hypothesis in alive]
        self.keys = [candidate.key for candidate, _ in alive]
        return taken

    def final_score(self, hypothesis: Hypothesis, candidate: Candidate) -> float:  # noqa: ARG002
        return candidate.key


@dataclass(frozen=True, init=False, repr=False)
class BeamSample(BeamSearch):
    """BeamSample(4, Temperature(0.8)): beam sampling, a beam whose hypotheses are drawn without replacement.

        c_1, c_2, … ~ exp( Σ_{i<t} s(y_i) + s(v) )   without replacement,   c = y ∘ v,  y ∈ Y_{t−1},  v ∈ V

    At every step the continuations of all live hypotheses of a request are drawn without replacement, with
    probabilities proportional to those of their whole texts: Gumbel noise is added to the sums, and the
    highest win. They fill the beam in the order drawn; the result is the n best of the pool. Width 1 is
    ancestral sampling. Kool, van Hoof & Welling 2019, §2 (the Gumbel-top-k trick); the scheme is that of
    Hugging Face's `generate(num_beams=…, do_sample=True)`. papers.bib: kool2019stochastic

    The noise of a request is drawn from its random stream (`decode.rng`). Differs from Hugging Face, which
    keeps the best w of all that were drawn: here the first w drawn stay, so that the beam is a sample. For a
    sample of whole texts, see `StochasticBeam`.
    """

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        options = self.options.bind(model, job)
        requests = [[BeamState(options, job, request)] for request in range(len(job.prompts))]
        rngs = [numpy_generator(job.stream_key(request)) for request in range(len(job.prompts))]
        return run_beams(
            model, job, requests, lambda inputs, beams: grow(inputs, beams, perturb(inputs, beams, rngs))
        )
