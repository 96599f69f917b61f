"""Loop rates: how often texts of each decoder end in a loop, and whether loops reinforce themselves.

    rate = share of texts that end in a loop (`find_loop`), or in an approximate one (`find_approximate_loop`)
    mean log p of a token in the 1st, 2nd, … repetition of the loops

Holtzman et al. 2020, §4 and figure 4 (papers.bib: holtzman2020curious): the probability of a phrase rises
with every repetition. Xu et al. 2022 call it self-reinforcement (papers.bib: xu2022learning).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unspool.arguments import shown
from unspool.decode.generate import generate
from unspool.decode.lockstep import check_model
from unspool.decode.loops import find_approximate_loop, find_loop
from unspool.decode.output import Output
from unspool.evaluate.diversity import check_texts, rep_n
from unspool.interfaces import Decoder, StepModel

MAX_REPETITIONS = 8


@dataclass(frozen=True)
class DecoderLoops:
    """Loops of the texts of one decoder."""

    decoder: str
    texts: int
    periods: tuple[int, ...]
    rep_4: float
    """Mean share of repeated 4-grams."""
    turns: tuple[float, ...]
    """Mean log p of a token in the first, second, … repetition, over all loops that have it."""
    approximate: int = 0
    """Number of texts that end in an approximate loop, most exact loops included."""

    @property
    def rate(self) -> float:
        """Share of texts that end in a loop."""
        return len(self.periods) / self.texts


@dataclass(frozen=True)
class LoopRates:
    """Loops by decoder."""

    decoders: tuple[DecoderLoops, ...]
    tokens: int
    """Maximum number of new tokens."""

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        worst = max(self.decoders, key=lambda decoder: decoder.rate)
        best = min(self.decoders, key=lambda decoder: decoder.rate)
        if not worst.periods:
            return f"no text ends in a loop within {self.tokens} tokens, with any decoder"
        summary = f"{_rate(worst)} end in a loop within {self.tokens} tokens"
        if best.rate < worst.rate:
            summary += f", {_rate(best)}"
        if len(worst.turns) > 1:
            rises = worst.turns[-1] > worst.turns[0]
            summary += (
                f"; log p of a token changes from {worst.turns[0]:.2f} in the first repetition to "
                f"{worst.turns[-1]:.2f} in repetition {len(worst.turns)}: "
                + ("loops reinforce themselves" if rises else "loops do not reinforce themselves")
            )
        return summary


def _rate(loops: DecoderLoops) -> str:
    return f"{len(loops.periods)} of {loops.texts} texts ({loops.rate:.0%}) by {loops.decoder}"


def loop_rates(
    model: StepModel,
    prompts: Sequence[str | Sequence[int]],
    decoders: Mapping[str, Decoder],
    *,
    max_new_tokens: int = 128,
    seed: int = 0,
) -> LoopRates:
    """Continue prompts (strings or token ids) with each decoder, and measure the loops."""
    check_model(model)
    check_texts(prompts, "prompts")
    if not isinstance(decoders, Mapping) or not decoders:
        raise ValueError(f"decoders is {shown(decoders)}, but must be a dict from names to decoders")
    results = []
    for name, decoder in decoders.items():
        outs = generate(model, list(prompts), decoder, max_new_tokens=max_new_tokens, seed=seed)  # type: ignore[arg-type]
        results.append(_measure_outputs(str(name), outs))  # type: ignore[arg-type]
    return LoopRates(tuple(results), max_new_tokens)


def _measure_outputs(decoder: str, outs: Sequence[Output]) -> DecoderLoops:
    periods, turns, approximate = [], [list[float]() for _ in range(MAX_REPETITIONS)], 0
    for out in outs:
        tokens = out.tokens[:-1] if out.finish_reason == "eos" else out.tokens
        approximate += find_approximate_loop(out.text or tokens) is not None
        loop = find_loop(tokens)
        if loop is None:
            continue
        periods.append(loop.period)
        for turn in range(min(MAX_REPETITIONS, int(loop.repeats))):
            start = loop.start + turn * loop.period
            turns[turn] += out.logps[start : start + loop.period]
    means = tuple(sum(logps) / len(logps) for logps in turns if logps)
    repeated = sum(rep_n(out.tokens, 4) for out in outs) / len(outs)
    return DecoderLoops(decoder, len(outs), tuple(periods), repeated, means, approximate)
