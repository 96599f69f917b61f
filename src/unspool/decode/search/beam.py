"""Beam search: keep the w best hypotheses at every step.

    Y_t = best_w { y ∘ v :  y ∈ Y_{t−1},  v ∈ V }   by   Σ_{i≤t} s(y_i),   s = log p (reshaped, where asked)

A hypothesis that ends (end-of-text token, stop string, limit) moves to a pool, where `length_penalty` and
`coverage` say what it is worth; `stop` says when a full pool ends the search. Width 1 is greedy search; a
width of at least |V|^T is exact search over T tokens (under `Proved`, for any length penalty).
Sutskever, Vinyals & Le 2014, §3.2.
papers.bib: sutskever2014sequence
Patience, Kasai et al. 2022: the pool holds ⌈patience · width⌉ hypotheses (p·k there).
papers.bib: kasai2022beam

Semantics are those of Hugging Face's `generate(num_beams=…)`: max(2, 1 + |eos|)·w candidates are looked at,
only the first w of them may end, lengths exclude the prompt. Differs from it: no place is ever filled by a
copy of another hypothesis, so that a request with fewer than n possible texts gets fewer; reshaped scores
are normalised again; of equal scores the smaller (hypothesis, token id) always comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unspool.decode.job import Frontier, Job
from unspool.decode.search.beam_loop import View, run_beams
from unspool.decode.search.beam_options import BeamSearch
from unspool.decode.search.beam_state import BeamState
from unspool.decode.search.candidates import propose
from unspool.decode.search.tree import Tree
from unspool.protocols import StepModel


@dataclass(frozen=True, init=False, repr=False)
class Beam(BeamSearch):
    """Beam(5, length_penalty=GNMT(0.6)): the n best texts it finds, the same every time."""

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]:
        """Yield a frontier for each step; a request's texts come when its beam has stopped."""
        options = self.options.prepared(model, job)
        requests = [[BeamState(options, job, request, Tree())] for request in range(len(job.prompts))]
        return run_beams(model, job, requests, grow)


def grow(view: View, beams: Sequence[BeamState]) -> None:
    """Every beam takes its best candidates."""
    count = beams[0].options.candidates(beams[0].job.ends)
    sums = [beam.totals for beam in beams]
    found = propose(sums, count, view.step.logp_NV, view.scores_NV, covered_N=view.covered_N)
    for beam, candidates in zip(beams, found, strict=True):
        beam.take(candidates)
