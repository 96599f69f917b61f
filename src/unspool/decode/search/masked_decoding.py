"""Masked decoding: mask-predict and masked diffusion, for models that fill masked positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar

import torch
from torch import Tensor

from unspool.arguments import Checked, integer, number
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep, split_ended
from unspool.decode.rng import torch_generator
from unspool.interfaces import Infilling, StepModel


def require_infilling(model: StepModel, decoder: Any) -> Infilling:
    """Return the infilling ability of a model, or refuse a model without it."""
    if model.infilling is None:
        raise ValueError(
            f"{decoder!r} needs a masked model, and a {type(model).__name__} is autoregressive: "
            "use Greedy(), Sample() or Beam(), or train a masked_lm or masked_seq2seq"
        )
    return model.infilling


@dataclass
class MaskedText:
    """A text of fixed length; masked positions have the id `mask`."""

    hypothesis: Hypothesis
    tokens: list[int]
    mask: int
    logps: list[float]
    """log p of each token when it was chosen."""

    @classmethod
    def blank(cls, hypothesis: Hypothesis, length: int, mask: int) -> MaskedText:
        return cls(hypothesis, [mask] * length, mask, [0.0] * length)

    @property
    def masked(self) -> list[int]:
        return [at for at, token in enumerate(self.tokens) if token == self.mask]

    @property
    def score(self) -> float:
        """The mean log p of its tokens (Ghazvininejad et al. 2019, §3.3)."""
        return sum(self.logps) / len(self.logps)

    def choose(self, at: int, token: int, logp: float) -> None:
        self.tokens[at], self.logps[at] = token, logp

    def mask_least_probable(self, count: int) -> None:
        for at in sorted(range(len(self.tokens)), key=self.logps.__getitem__)[:count]:
            self.tokens[at] = self.mask

    def extend(self, hypothesis: Hypothesis, job: Job, *, last: bool) -> Hypothesis:
        """Extend the hypothesis up to the first masked position; if `last`, it ends in any case."""
        for at in range(len(hypothesis.tokens), len(self.tokens)):
            if hypothesis.finish_reason is not None or self.tokens[at] == self.mask:
                break
            hypothesis = hypothesis.extend(self.tokens[at], self.logps[at], self.logps[at], job)
        if last and hypothesis.finish_reason is None:
            return replace(hypothesis, finish_reason="length")
        return hypothesis


def _blank_texts(
    model: Infilling, mask: int, job: Job, hypotheses: Sequence[Hypothesis], count: int
) -> list[MaskedText]:
    """Texts of the `count` most probable lengths for each hypothesis, all masked."""
    prompts = [job.prompts[hypothesis.request] for hypothesis in hypotheses]
    limits = [job.limits[hypothesis.request] for hypothesis in hypotheses]
    return [
        MaskedText.blank(hypothesis, length, mask)
        for hypothesis, lengths in zip(hypotheses, model.lengths(prompts, limits, count), strict=True)
        for length, _ in lengths
    ]


def predict_positions(model: Infilling, job: Job, texts: Sequence[MaskedText]) -> list[Tensor]:
    """log p at every position of each text, (T, V)."""
    return model.fill(
        [job.prompts[text.hypothesis.request] for text in texts], [text.tokens for text in texts]
    )


@dataclass(frozen=True)
class MaskPredict(Checked):
    """MaskPredict(10, lengths=5): predict all tokens at once, then mask the least probable and predict again.

        n_t = N · (T − t)/T positions with the lowest p_i are masked;   there y_i = argmax_w p(w | shown, x)

    Ghazvininejad et al. 2019, §3.2 and §3.3 (papers.bib: ghazvininejad2019mask). The length N is predicted
    first: the `lengths` most probable ones are tried, and the text with the highest mean log p wins.
    """

    iterations: int = integer(10, at_least=1, advice="1 predicts all tokens at once.")
    """T: passes over the whole text."""
    lengths: int = integer(5, at_least=1, advice="1 tries only the most probable length.")
    """The length beam: number of lengths tried for each prompt."""

    streams: ClassVar[bool] = False

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        fills = require_infilling(model, self)
        if job.n > self.lengths:
            raise ValueError(f"n={job.n} is more than lengths={self.lengths}: reduce n or increase lengths")
        return self._search(fills, model.vocab_size, job)

    def _search(self, model: Infilling, mask: int, job: Job) -> Iterator[SearchStep]:
        for hypotheses in replace(job, n=1).batches(self.lengths):
            texts = _blank_texts(model, mask, job, hypotheses, self.lengths)
            for t in range(self.iterations):
                for text in texts if t else ():
                    text.mask_least_probable(len(text.tokens) * (self.iterations - t) // self.iterations)
                _fill_masked(model, job, texts)
            ended = []
            for _, group in groupby(texts, key=lambda text: text.hypothesis.request):
                best = sorted(group, key=lambda text: -text.score)[: job.n]
                ended += [
                    replace(text.extend(text.hypothesis, job, last=True), sample=rank, total=text.score)
                    for rank, text in enumerate(best)
                ]
            yield SearchStep((), tuple(ended))


def _fill_masked(model: Infilling, job: Job, texts: list[MaskedText]) -> None:
    some = [text for text in texts if text.masked]
    if not some:
        return
    for text, logp_TV in zip(some, predict_positions(model, job, some), strict=True):
        best = logp_TV.max(dim=-1)
        tokens, logps = best.indices.tolist(), best.values.tolist()
        for at in text.masked:
            text.choose(at, tokens[at], logps[at])


@dataclass(frozen=True)
class MaskedDiffusion(Checked):
    """MaskedDiffusion(20): start with every position masked, and unmask the most probable ones in each step.

        s = 1 − i/S:   ŷ_j ~ p(· | shown, x) at all masked positions;   the N·s least probable stay masked

    Sahoo et al. 2024, §3.2.3 (papers.bib: sahoo2024simple); low-confidence remasking: Nie et al. 2025, §2.4
    and algorithm 5 (papers.bib: nie2025large). An unmasked token does not change, so that a text is streamed
    up to its first masked position. One step predicts all tokens at once; as many steps as positions, one
    each.
    """

    iterations: int = integer(20, at_least=1, advice="1 predicts all tokens at once.")
    """S: number of steps."""
    temperature: float = number(0.0, at_least=0.0, advice="0 takes the most probable token.")

    streams: ClassVar[bool] = True

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        return self._search(require_infilling(model, self), model.vocab_size, job)

    def _search(self, model: Infilling, mask: int, job: Job) -> Iterator[SearchStep]:
        for hypotheses in job.batches():
            texts = _blank_texts(model, mask, job, hypotheses, 1)
            rngs = [
                torch_generator(job.stream_key(hypothesis.request, hypothesis.sample))
                for hypothesis in hypotheses
            ]
            live: dict[int, Hypothesis] = dict(enumerate(hypotheses))
            for i in range(1, self.iterations + 1):
                some = [at for at in live if texts[at].masked]
                for at, logp_TV in zip(
                    some, predict_positions(model, job, [texts[at] for at in some]), strict=True
                ):
                    _unmask(texts[at], logp_TV, self.temperature, rngs[at], 1 - i / self.iterations)
                grown = {
                    at: texts[at].extend(hypothesis, job, last=not texts[at].masked)
                    for at, hypothesis in live.items()
                }
                live = {
                    at: hypothesis for at, hypothesis in grown.items() if hypothesis.finish_reason is None
                }
                yield split_ended(list(grown.values()))
                if not live:
                    break


def _unmask(text: MaskedText, logp_TV: Tensor, temperature: float, rng: torch.Generator, left: float) -> None:
    """Draw a token at every masked position and keep the most probable: the share `left` stays masked."""
    places = text.masked
    logp_PV = logp_TV[places].cpu()
    drawn_PV = logp_PV
    if temperature:
        # argmax(log p / T + Gumbel noise) is a draw from the softmax of log p / T.
        noise_PV = -torch.log(-torch.log(torch.rand(logp_PV.shape, generator=rng).clamp(1e-20, 1 - 1e-7)))
        drawn_PV = logp_PV / temperature + noise_PV
    tokens_P = drawn_PV.argmax(-1)
    logps = logp_PV.gather(1, tokens_P[:, None])[:, 0].tolist()
    tokens = tokens_P.tolist()
    count = len(places) - min(int(len(text.tokens) * left), len(places) - 1 if left else 0)
    for which in sorted(range(len(places)), key=lambda which: -logps[which])[:count]:
        text.choose(places[which], tokens[which], logps[which])
