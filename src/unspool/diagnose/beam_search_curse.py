"""The beam curse: as a beam grows wider, texts become more probable, shorter, and at last worse.

    for each width:  log p of the text · its length, for each token of the right one · F₁ of its tokens

Koehn & Knowles 2017 (papers.bib: koehn2017six); Stahlberg & Byrne 2019, who found the empty translation to be
the most probable one of more than half of their sentences (papers.bib: stahlberg2019nmt). Hypotheses are
ranked by log p alone (`Sum`), unless another ranking is asked for: a length penalty is the usual remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from unspool.decode.arguments import as_whole, items, shown
from unspool.decode.combine.lockstep import check_model
from unspool.decode.generate import generate
from unspool.decode.output import Output
from unspool.decode.search import Beam, TokenF1
from unspool.evaluate.teacher_forcing import token_pairs
from unspool.interfaces import Decoder, StepModel

WIDTHS = (1, 2, 4, 8, 16, 32)
WIDEST = 4096


@dataclass(frozen=True)
class BeamWidth:
    """What a beam of one width finds, on average."""

    width: int
    logp: float
    """Of a whole text, its end included."""
    length: float
    """Tokens, without the end."""
    ratio: float
    """Of all lengths to all right ones."""
    quality: float
    """F₁ of the tokens of a text and of the right one, 0 … 1."""
    empty: float
    """The share of texts that say nothing."""
    ended: float
    """The share of texts that came to an end by themselves."""


@dataclass(frozen=True)
class BeamWidths:
    """From narrow to wide."""

    points: tuple[BeamWidth, ...]

    @property
    def best(self) -> BeamWidth:
        """The narrowest of those with the best quality."""
        return max(self.points, key=lambda it: (it.quality, -it.width))

    @property
    def cursed(self) -> bool:
        """Whether the widest beam finds texts that are shorter, and worse, than the best width's."""
        return self.points[-1].length < self.best.length and self.points[-1].quality < self.best.quality

    @property
    def verdict(self) -> str:
        """In words."""
        first, last, best = self.points[0], self.points[-1], self.best
        said = (
            f"from width {first.width} to {last.width} texts go from {first.length:.1f} to {last.length:.1f} "
            f"tokens (ratio {first.ratio:.2f} to {last.ratio:.2f}) and F₁ from {first.quality:.3f} to "
            f"{last.quality:.3f}, "
            f"best at width {best.width} ({best.quality:.3f})"
        )
        if not any(it.ended for it in self.points):
            return f"{said}; no text came to an end by itself, so that their lengths say nothing"
        if self.cursed:
            return f"{said}: the beam curse is there"
        return f"{said}: no beam curse up to this width"


def beam_widths(
    model: StepModel,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    widths: Sequence[int] = WIDTHS,
    *,
    beam: Beam | None = None,
    max_new_tokens: int | None = None,
) -> BeamWidths:
    """On texts whose right continuation is known: a prompt (or source) and what follows, as tokens.

    `beam` is what is made wider (`Beam(1)`); texts may be twice as long as the longest right one, or
    `max_new_tokens`.
    """
    check_model(model)
    sizes = sorted({_width(it) for it in items("widths", widths, "whole numbers, each at least 1")})
    if not sizes:
        raise ValueError("widths is empty: give whole numbers, each at least 1")
    beam = Beam(1) if beam is None else beam
    if not isinstance(beam, Beam):
        raise TypeError(f"beam is {shown(beam)}, but must be a Beam, whose width is changed.")
    eos = frozenset() if model.tokenizer is None else model.tokenizer.eos_ids
    pairs = [(prompt, _bare(right, eos)) for prompt, right in token_pairs(texts)]
    longest = max(len(right) for _, right in pairs)
    if not longest:
        raise ValueError("all right texts are empty: there is no length to compare with")
    limit = 2 * longest + 2 if max_new_tokens is None else max_new_tokens
    limit = as_whole("max_new_tokens", limit, at_least=1, advice="Twice the right length is usual.")
    f1, points = TokenF1(), []
    prompts: list[Sequence[int]] = [prompt for prompt, _ in pairs]
    for width in sizes:
        wider: Decoder = _wider(beam, width)
        outs: list[Output] = generate(model, prompts, wider, max_new_tokens=limit, seed=0)
        said = [_bare(out.tokens, eos) for out in outs]
        points.append(
            BeamWidth(
                width=width,
                logp=fmean(sum(out.logps) for out in outs),
                length=fmean(map(len, said)),
                ratio=sum(map(len, said)) / sum(len(right) for _, right in pairs),
                quality=fmean(f1(it, right) for it, (_, right) in zip(said, pairs, strict=True)),
                empty=fmean(not it for it in said),
                ended=fmean(out.finish_reason == "eos" for out in outs),
            )
        )
    return BeamWidths(tuple(points))


def _wider(beam: Beam, width: int) -> Beam:
    it = beam.options
    return Beam(
        width,
        *it.transforms,
        length_penalty=it.length_penalty,
        coverage=it.coverage,
        patience=it.patience,
        stop=it.stop,
    )


def _width(value: int) -> int:
    found = as_whole("widths", value, at_least=1, advice="Each is how many hypotheses are kept.")
    if found > WIDEST:
        raise ValueError(f"widths has {found}, and beams of up to {WIDEST} are looked at")
    return found


def _bare(tokens: Sequence[int], eos: frozenset[int]) -> tuple[int, ...]:
    """Without the end."""
    return tuple(tokens[:-1] if tokens and tokens[-1] in eos else tokens)
