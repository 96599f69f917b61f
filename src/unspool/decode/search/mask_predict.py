"""Mask-predict: say all tokens at once, then hide those that are least certain, and say these again.

    n_t = N · (T − t)/T places with the lowest p_i are hidden, and there   y_i = argmax_w p(w | shown, x)

Ghazvininejad et al. 2019, §3.2 and §3.3 (papers.bib: ghazvininejad2019mask). The length N comes first:
as many of the most probable ones as `lengths` says are tried, and the text with the highest mean log p wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from unspool.decode.arguments import whole
from unspool.decode.job import Frontier, Job
from unspool.decode.search.infilled_paths import Canvas, filled, infilling
from unspool.protocols import Infilling, StepModel


@dataclass(frozen=True)
class MaskPredict:
    """MaskPredict(10, lengths=5): for models that fill hidden places; the same text every time."""

    iterations: int = 10
    """T: passes over the whole text."""
    lengths: int = 5
    """The length beam: how many lengths are tried for each prompt."""

    def __post_init__(self) -> None:
        whole(self, "iterations", at_least=1, advice="One pass says all tokens at once.")
        whole(self, "lengths", at_least=1, advice="1 tries the most probable length alone.")

    @property
    def streams(self) -> bool:
        """Any token may still change."""
        return False

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]:
        """Yield the best texts of each prompt when its last pass is done."""
        fills = infilling(model, self)
        if job.n > self.lengths:
            raise ValueError(
                f"n={job.n} texts were asked of {self.lengths} lengths: ask for fewer, or raise lengths"
            )
        return self._search(fills, model.vocab_size, job)

    def _search(self, model: Infilling, hidden: int, job: Job) -> Iterator[Frontier]:
        for paths in replace(job, n=1).batches(self.lengths):
            found = model.lengths(
                [job.prompts[it.request] for it in paths],
                [job.limits[it.request] for it in paths],
                self.lengths,
            )
            canvases = [
                Canvas.blank(path, length, hidden, logp)
                for path, lengths in zip(paths, found, strict=True)
                for length, logp in lengths
            ]
            for t in range(self.iterations):
                _hide(canvases, self.iterations, t)
                _predict(model, job, canvases)
            ended = []
            for _, group in groupby(canvases, key=lambda it: it.path.request):
                best = sorted(group, key=lambda it: -it.score)[: job.n]
                ended += [
                    replace(it.grown(it.path, job, last=True), sample=at, total=it.score)
                    for at, it in enumerate(best)
                ]
            yield Frontier((), tuple(ended))


def _hide(canvases: list[Canvas], iterations: int, t: int) -> None:
    """Hide the least certain places of each; all of them at first."""
    for canvas in canvases:
        size = len(canvas.tokens)
        count = size * (iterations - t) // iterations
        for at in sorted(range(size), key=lambda at: canvas.logps[at])[:count] if t else ():
            canvas.hide(at)


def _predict(model: Infilling, job: Job, canvases: list[Canvas]) -> None:
    """Put the most probable token at every hidden place."""
    some = [canvas for canvas in canvases if canvas.places]
    if not some:
        return
    for canvas, logp_TV in zip(some, filled(model, job, some), strict=True):
        best = logp_TV.max(dim=-1)
        tokens, logps = best.indices.tolist(), best.values.tolist()
        for at in canvas.places:
            canvas.choose(at, tokens[at], logps[at])
