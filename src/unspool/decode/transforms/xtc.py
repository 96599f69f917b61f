"""XTC, exclude top choices: now and then, cut every likely token but the least likely of them.

    L = { x : p(x) ≥ θ };   with probability π, cut all of L but argmin_{x∈L} p(x)

Weidmann 2024.
papers.bib: weidmann2024xtc

θ is `threshold`, π is `probability`. Where fewer than two tokens reach θ, nothing is cut; so θ > ½ never
cuts.
Ties: all tokens that tie for the least probable of L stay.
`spare`: where one of these tokens would be cut, nothing is (the author spares line feeds and the end of
text).
Differs from the original: a transform has no dice, so the coin is a hash of the request's seed, of the path's
sample number, its prompt and its tokens. It is fair over paths and steps, and the same for the same path and
seed: alone, in a batch, and again.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from unspool.decode.arguments import ids, keep, number, within
from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.decode.transforms.scores import cut, peaks, precise
from unspool.protocols import Step, StepModel


@dataclass(frozen=True)
class XTC:
    """With some probability, cut all but the least probable of the likely tokens."""

    threshold: float = 0.1
    probability: float = 0.5
    spare: tuple[int, ...] = ()
    seeds: tuple[int, ...] = field(default=(), init=False, repr=False, compare=False)
    """The seed of every request; empty before a search has begun, when each counts as 0."""

    def __post_init__(self) -> None:
        advice = "The author recommends 0.1; above 0.5 nothing is ever cut."
        number(self, "threshold", above=0, at_most=1, advice=advice)
        advice = "The author recommends 0.5; 0 never cuts."
        number(self, "probability", at_least=0, at_most=1, advice=advice)
        keep(self, spare=ids("XTC.spare", self.spare, empty=True))

    def prepare(self, model: StepModel, job: Job) -> XTC:  # noqa: ARG002
        """With the seeds of the job's requests."""
        ready = replace(self)
        object.__setattr__(ready, "seeds", job.seeds)
        return ready

    def coin(self, path: Path) -> float:
        """A number in [0, 1) that is fixed by the path and its request's seed."""
        seed = self.seeds[path.request] if self.seeds else 0
        facts = (path.sample, len(path.prompt), *path.prompt, *path.tokens)
        packed = f"{seed}/".encode() + b"".join(struct.pack("<q", fact) for fact in facts)
        digest = hashlib.blake2b(packed, digest_size=8).digest()
        return math.ldexp(int.from_bytes(digest, "little") >> 11, -53)

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        within("XTC.spare", self.spare, scores_NV.shape[1])
        tossed = [[self.coin(path) < self.probability] for path in history]
        tossed_N1 = torch.tensor(tossed, device=scores_NV.device)
        p_NV = precise(scores_NV).softmax(dim=-1)
        likely_NV = p_NV >= self.threshold
        least_N1 = p_NV.masked_fill(~likely_NV, math.inf).amin(dim=-1, keepdim=True)
        top_NV = likely_NV & (p_NV > least_N1)
        spared_N1 = top_NV[:, list(self.spare)].any(dim=-1, keepdim=True)
        return cut(scores_NV, ~(top_NV & tossed_N1 & ~spared_N1))
