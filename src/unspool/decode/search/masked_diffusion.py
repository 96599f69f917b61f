"""Masked diffusion: begin with every place hidden, and show in each step those that are most certain.

    s = 1 − i/S:   ŷ_j ~ p(· | shown, x) at all hidden places;   the N·s least certain of them stay hidden

Sahoo et al. 2024, §3.2.3 (papers.bib: sahoo2024simple); low-confidence remasking: Nie et al. 2025, §2.4 and
algorithm 5 (papers.bib: nie2025large). What is shown once stays, so that the beginning of a text is streamed
as soon as nothing in it is hidden. With one step all tokens are said at once; with as many as a text has
places, one in each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import number, whole
from unspool.decode.job import Frontier, Job
from unspool.decode.path import Path
from unspool.decode.rng import torch_generator
from unspool.decode.search.infilled_paths import Canvas, filled, infilling
from unspool.protocols import Infilling, StepModel


@dataclass(frozen=True)
class MaskedDiffusion:
    """MaskedDiffusion(20): for models that fill hidden places."""

    iterations: int = 20
    """S: steps from a text that is all hidden to one that is all shown."""
    temperature: float = 0.0
    """Of what each place is drawn from; 0: the most probable token."""

    def __post_init__(self) -> None:
        whole(self, "iterations", at_least=1, advice="One step says all tokens at once.")
        number(self, "temperature", at_least=0.0, advice="0 takes the most probable token.")

    @property
    def streams(self) -> bool:
        """What is shown stays."""
        return True

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]:
        """Yield a frontier for each step."""
        return self._search(infilling(model, self), model.vocab_size, job)

    def _search(self, model: Infilling, hidden: int, job: Job) -> Iterator[Frontier]:
        for paths in job.batches():
            prompts = [job.prompts[path.request] for path in paths]
            limits = [job.limits[path.request] for path in paths]
            foreseen = model.lengths(prompts, limits, 1)
            canvases = [
                Canvas.blank(path, length, hidden, logp)
                for path, ((length, logp),) in zip(paths, foreseen, strict=True)
            ]
            rngs = [torch_generator(job.stream_key(path.request, path.sample)) for path in paths]
            live: dict[int, Path] = dict(enumerate(paths))
            for i in range(1, self.iterations + 1):
                some = [at for at in live if canvases[at].places]
                for at, logp_TV in zip(some, filled(model, job, [canvases[at] for at in some]), strict=True):
                    _show(canvases[at], logp_TV, self.temperature, rngs[at], 1 - i / self.iterations)
                grown = {
                    at: canvases[at].grown(path, job, last=not canvases[at].places)
                    for at, path in live.items()
                }
                live = {at: path for at, path in grown.items() if path.finish is None}
                yield Frontier(tuple(live.values()), tuple(it for it in grown.values() if it.finish))
                if not live:
                    break


def _show(canvas: Canvas, logp_TV: Tensor, temperature: float, rng: torch.Generator, left: float) -> None:
    """Draw a token at every hidden place, and keep the most certain: `left` of all places stay hidden."""
    places = canvas.places
    logp_PV = logp_TV[places].cpu()
    drawn_PV = logp_PV
    if temperature:
        # argmax(log p / T + Gumbel noise) is a draw from the softmax of log p / T.
        noise_PV = -torch.log(-torch.log(torch.rand(logp_PV.shape, generator=rng).clamp(1e-20, 1 - 1e-7)))
        drawn_PV = logp_PV / temperature + noise_PV
    tokens_P = drawn_PV.argmax(-1)
    logps = logp_PV.gather(1, tokens_P[:, None])[:, 0].tolist()
    tokens = tokens_P.tolist()
    count = len(places) - min(int(len(canvas.tokens) * left), len(places) - 1 if left else 0)
    for which in sorted(range(len(places)), key=lambda which: -logps[which])[:count]:
        canvas.choose(places[which], tokens[which], logps[which])
