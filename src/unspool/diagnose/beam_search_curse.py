"""The beam search curse: wider beams find more probable, but shorter and finally worse texts.

    for each width:  log p of the text · length / reference length · F₁ of its tokens

Koehn & Knowles 2017 (papers.bib: koehn2017six). Stahlberg & Byrne 2019 found that the empty translation was
the most probable one for more than half of their sentences (papers.bib: stahlberg2019nmt). By default
hypotheses are ranked by log p alone (`Sum`); a length penalty is the usual remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from unspool.arguments import as_int, items, shown
from unspool.decode.generate import generate
from unspool.decode.lockstep import check_model
from unspool.decode.output import Output
from unspool.decode.search import Beam, TokenF1
from unspool.evaluate.teacher_forcing import token_pairs
from unspool.interfaces import Decoder, StepModel

WIDTHS = (1, 2, 4, 8, 16, 32)
MAX_WIDTH = 4096


@dataclass(frozen=True)
class BeamWidth:
    """Means over the texts of one beam width."""

    width: int
    logp: float
    """log p of a text, including EOS."""
    length: float
    """Tokens, without EOS."""
    ratio: float
    """Total length / total reference length."""
    quality: float
    """F₁ of the tokens of a text and its reference, 0 … 1."""
    empty: float
    """Share of empty texts."""
    ended: float
    """Share of texts that ended with EOS."""


@dataclass(frozen=True)
class BeamWidths:
    """Results for each width, narrowest first."""

    points: tuple[BeamWidth, ...]

    @property
    def best(self) -> BeamWidth:
        """The narrowest width with the best quality."""
        return max(self.points, key=lambda point: (point.quality, -point.width))

    @property
    def cursed(self) -> bool:
        """Whether the texts of the widest beam are shorter and worse than those of the best width."""
        return self.points[-1].length < self.best.length and self.points[-1].quality < self.best.quality

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        first, last, best = self.points[0], self.points[-1], self.best
        summary = (
            f"from width {first.width} to {last.width}, length changes from {first.length:.1f} to "
            f"{last.length:.1f} tokens (ratio {first.ratio:.2f} to {last.ratio:.2f}) and F₁ from "
            f"{first.quality:.3f} to {last.quality:.3f}, best at width {best.width} ({best.quality:.3f})"
        )
        if not any(point.ended for point in self.points):
            return f"{summary}; no text ended with EOS, so the lengths mean nothing"
        if self.cursed:
            return f"{summary}: beam search curse"
        return f"{summary}: no beam search curse up to this width"


def beam_widths(
    model: StepModel,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    widths: Sequence[int] = WIDTHS,
    *,
    beam: Beam | None = None,
) -> BeamWidths:
    """Decode prompts with several beam widths, and compare the texts with references.

    `texts` are pairs of a prompt (or source) and its reference, as token ids. `beam` (default: `Beam(1)`) is
    used with each width. Texts may be twice as long as the longest reference.
    """
    check_model(model)
    wanted = f"whole numbers from 1 to {MAX_WIDTH}"
    sizes = sorted(
        {as_int("widths", width, at_least=1, advice="") for width in items("widths", widths, wanted)}
    )
    if not sizes or sizes[-1] > MAX_WIDTH:
        raise ValueError(f"widths is {shown(widths)}, but must be {wanted}")
    beam = Beam(1) if beam is None else beam
    if not isinstance(beam, Beam):
        raise TypeError(f"beam is {shown(beam)}, but must be a Beam")
    eos = frozenset() if model.tokenizer is None else model.tokenizer.eos_ids
    pairs = [(prompt, _strip_eos(reference, eos)) for prompt, reference in token_pairs(texts)]
    longest = max(len(reference) for _, reference in pairs)
    if not longest:
        raise ValueError("all references are empty")
    f1, points = TokenF1(), []
    prompts: list[Sequence[int]] = [prompt for prompt, _ in pairs]
    for width in sizes:
        wider: Decoder = beam.with_width(width)
        outs: list[Output] = generate(model, prompts, wider, max_new_tokens=2 * longest + 2, seed=0)
        bare_texts = [_strip_eos(out.tokens, eos) for out in outs]
        points.append(
            BeamWidth(
                width=width,
                logp=fmean(sum(out.logps) for out in outs),
                length=fmean(map(len, bare_texts)),
                ratio=sum(map(len, bare_texts)) / sum(len(reference) for _, reference in pairs),
                quality=fmean(
                    f1(text, reference) for text, (_, reference) in zip(bare_texts, pairs, strict=True)
                ),
                empty=fmean(not text for text in bare_texts),
                ended=fmean(out.finish_reason == "eos" for out in outs),
            )
        )
    return BeamWidths(tuple(points))


def _strip_eos(tokens: Sequence[int], eos: frozenset[int]) -> tuple[int, ...]:
    return tuple(tokens[:-1] if tokens and tokens[-1] in eos else tokens)
