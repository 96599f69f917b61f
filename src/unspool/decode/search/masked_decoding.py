"""Texts with hidden places on their way to paths: what mask-predict and masked diffusion share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from unspool.decode.arguments import check_int, check_number
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.rng import torch_generator
from unspool.interfaces import Infilling, StepModel


def infilling(model: StepModel, decoder: Any) -> Infilling:
    """What fills hidden places, or an error for a model that does not."""
    if model.infilling is None:
        raise ValueError(
            f"{decoder!r} fills hidden places, and a {type(model).__name__} says one token after another: "
            "decode it by Greedy(), Sample() or Beam(), or train a masked_lm or masked_seq2seq"
        )
    return model.infilling


@dataclass
class Canvas:
    """A text of a fixed length; `tokens` has the id `hidden` where nothing is chosen yet."""

    path: Hypothesis
    tokens: list[int]
    hidden: int
    logps: list[float]
    """log p of each token when it was chosen."""
    foreseen: float = 0.0
    """log p of its length."""

    @classmethod
    def blank(cls, path: Hypothesis, length: int, hidden: int, foreseen: float = 0.0) -> Canvas:
        """With every place hidden."""
        return cls(path, [hidden] * length, hidden, [0.0] * length, foreseen)

    @property
    def places(self) -> list[int]:
        """Where nothing is chosen yet."""
        return [at for at, token in enumerate(self.tokens) if token == self.hidden]

    @property
    def score(self) -> float:
        """The mean log p of its tokens (Ghazvininejad et al. 2019, §3.3)."""
        return sum(self.logps) / len(self.logps)

    def choose(self, at: int, token: int, logp: float) -> None:
        """Put a token at a place."""
        self.tokens[at], self.logps[at] = token, logp

    def hide(self, at: int) -> None:
        """Take it away again."""
        self.tokens[at] = self.hidden

    def grown(self, path: Hypothesis, job: Job, *, last: bool) -> Hypothesis:
        """The path with the tokens up to the first hidden place; the `last` time it ends in any case."""
        for at in range(len(path.tokens), len(self.tokens)):
            if path.finish_reason is not None or self.tokens[at] == self.hidden:
                break
            path = path.extend(self.tokens[at], self.logps[at], self.logps[at], job)
        return replace(path, finish_reason="length") if last and path.finish_reason is None else path


def filled(model: Infilling, job: Job, canvases: Sequence[Canvas]) -> list[Tensor]:
    """log p at every place of each, (T, V)."""
    return model.fill([job.prompts[it.path.request] for it in canvases], [it.tokens for it in canvases])


@dataclass(frozen=True)
class MaskPredict:
    """MaskPredict(10, lengths=5): for models that fill hidden places; the same text every time.

    Mask-predict: say all tokens at once, then hide those that are least certain, and say these again.

        n_t = N · (T − t)/T places with the lowest p_i are hidden, and there   y_i = argmax_w p(w | shown, x)

    Ghazvininejad et al. 2019, §3.2 and §3.3 (papers.bib: ghazvininejad2019mask). The length N comes first: as
    many of the most probable ones as `lengths` says are tried, and the text with the highest mean log p wins.
    """

    iterations: int = 10
    """T: passes over the whole text."""
    lengths: int = 5
    """The length beam: how many lengths are tried for each prompt."""

    def __post_init__(self) -> None:
        check_int(self, "iterations", at_least=1, advice="One pass says all tokens at once.")
        check_int(self, "lengths", at_least=1, advice="1 tries the most probable length alone.")

    @property
    def streams(self) -> bool:
        """Any token may still change."""
        return False

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        """Yield the best texts of each prompt when its last pass is done."""
        fills = infilling(model, self)
        if job.n > self.lengths:
            raise ValueError(
                f"n={job.n} texts were asked of {self.lengths} lengths: ask for fewer, or raise lengths"
            )
        return self._search(fills, model.vocab_size, job)

    def _search(self, model: Infilling, hidden: int, job: Job) -> Iterator[SearchStep]:
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
            yield SearchStep((), tuple(ended))


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


@dataclass(frozen=True)
class MaskedDiffusion:
    """MaskedDiffusion(20): for models that fill hidden places.

    Masked diffusion: begin with every place hidden, and show in each step those that are most certain.

        s = 1 − i/S:   ŷ_j ~ p(· | shown, x) at all hidden places;   the N·s least certain of them stay hidden

    Sahoo et al. 2024, §3.2.3 (papers.bib: sahoo2024simple); low-confidence remasking: Nie et al. 2025, §2.4
    and algorithm 5 (papers.bib: nie2025large). What is shown once stays, so that the beginning of a text is
    streamed as soon as nothing in it is hidden. With one step all tokens are said at once; with as many as a
    text has places, one in each step.
    """

    iterations: int = 20
    """S: steps from a text that is all hidden to one that is all shown."""
    temperature: float = 0.0
    """Of what each place is drawn from; 0: the most probable token."""

    def __post_init__(self) -> None:
        check_int(self, "iterations", at_least=1, advice="One step says all tokens at once.")
        check_number(self, "temperature", at_least=0.0, advice="0 takes the most probable token.")

    @property
    def streams(self) -> bool:
        """What is shown stays."""
        return True

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        """Yield a frontier for each step."""
        return self._search(infilling(model, self), model.vocab_size, job)

    def _search(self, model: Infilling, hidden: int, job: Job) -> Iterator[SearchStep]:
        for paths in job.batches():
            prompts = [job.prompts[path.request] for path in paths]
            limits = [job.limits[path.request] for path in paths]
            foreseen = model.lengths(prompts, limits, 1)
            canvases = [
                Canvas.blank(path, length, hidden, logp)
                for path, ((length, logp),) in zip(paths, foreseen, strict=True)
            ]
            rngs = [torch_generator(job.stream_key(path.request, path.sample)) for path in paths]
            live: dict[int, Hypothesis] = dict(enumerate(paths))
            for i in range(1, self.iterations + 1):
                some = [at for at in live if canvases[at].places]
                for at, logp_TV in zip(some, filled(model, job, [canvases[at] for at in some]), strict=True):
                    _show(canvases[at], logp_TV, self.temperature, rngs[at], 1 - i / self.iterations)
                grown = {
                    at: canvases[at].grown(path, job, last=not canvases[at].places)
                    for at, path in live.items()
                }
                live = {at: path for at, path in grown.items() if path.finish_reason is None}
                yield SearchStep(tuple(live.values()), tuple(it for it in grown.values() if it.finish_reason))
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
