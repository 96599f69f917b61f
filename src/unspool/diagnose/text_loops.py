"""Loops: how often texts end up going round in circles, by each decoder, and whether a circle feeds itself.

    rate = share of texts that end in a loop (`find_loop`), or in an approximate one (`find_approximate_loop`)
    log p of a token in the 1st, 2nd, … turn of the loops, on average

Holtzman et al. 2020, §4 and figure 4 (papers.bib: holtzman2020curious): the probability of a phrase rises
every time that it is said. Xu et al. 2022 call it self-reinforcement (papers.bib: xu2022learning).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unspool.decode.arguments import as_whole, shown
from unspool.decode.combine.lockstep import check_model
from unspool.decode.generate import generate
from unspool.decode.loops import find_approximate_loop, find_loop
from unspool.decode.output import Output
from unspool.evaluate.diversity import rep_n
from unspool.interfaces import Decoder, StepModel

TURNS = 8
"""Turns of a loop that are looked at."""


@dataclass(frozen=True)
class DecoderLoops:
    """What one decoder's texts end in."""

    decoder: str
    texts: int
    periods: tuple[int, ...]
    """Of the texts that loop."""
    rep_4: float
    """The share of 4-grams that were said before, on average."""
    turns: tuple[float, ...]
    """log p of a token in the first, second, … turn, over all loops that have it."""
    approximate: int = 0
    """Texts that end in an approximate loop; most exact loops are approximate ones, too."""

    @property
    def rate(self) -> float:
        """The share of texts that loop."""
        return len(self.periods) / self.texts


@dataclass(frozen=True)
class LoopRates:
    """Every decoder's."""

    decoders: tuple[DecoderLoops, ...]
    tokens: int
    """How long texts could become."""

    @property
    def verdict(self) -> str:
        """In words."""
        worst = max(self.decoders, key=lambda it: it.rate)
        best = min(self.decoders, key=lambda it: it.rate)
        if not worst.periods:
            return f"no text loops within {self.tokens} tokens, under any of the decoders"
        said = f"{_rate(worst)} end in a loop within {self.tokens} tokens"
        if best.rate < worst.rate:
            said += f", {_rate(best)}"
        if len(worst.turns) > 1:
            rises = worst.turns[-1] > worst.turns[0]
            said += (
                f"; log p of a token goes from {worst.turns[0]:.2f} in the first turn to "
                f"{worst.turns[-1]:.2f} in turn {len(worst.turns)}: "
                + ("the loop feeds itself" if rises else "it does not feed itself")
            )
        return said


def _rate(it: DecoderLoops) -> str:
    return f"{len(it.periods)} of {it.texts} texts ({it.rate:.0%}) by {it.decoder}"


def loop_rates(
    model: StepModel,
    prompts: Sequence[str | Sequence[int]],
    decoders: Mapping[str, Decoder],
    *,
    max_new_tokens: int = 128,
    seed: int = 0,
) -> LoopRates:
    """Of texts after the prompts, strings or token ids, by each decoder."""
    check_model(model)
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Sequence) or not prompts:
        raise ValueError(f"prompts is {shown(prompts)}, but must be a list of one prompt or more.")
    for place, prompt in enumerate(prompts):
        if not isinstance(prompt, Sequence):
            raise TypeError(f"prompt {place} is {shown(prompt)}, but must be a string or token ids.")
    if not isinstance(decoders, Mapping) or not decoders:
        raise ValueError(f"decoders is {shown(decoders)}, but must be a dict from names to decoders.")
    limit = as_whole("max_new_tokens", max_new_tokens, at_least=1, advice="128 is usual.")
    seed = as_whole("seed", seed, at_least=0, advice="The same seed gives the same texts.")
    found = []
    for name, decoder in decoders.items():
        outs = generate(model, list(prompts), decoder, max_new_tokens=limit, seed=seed)  # type: ignore[arg-type]
        found.append(_of(str(name), outs))  # type: ignore[arg-type]
    return LoopRates(tuple(found), limit)


def _of(decoder: str, outs: Sequence[Output]) -> DecoderLoops:
    periods, turns, approximate = [], [list[float]() for _ in range(TURNS)], 0
    for out in outs:
        tokens = out.tokens[:-1] if out.finish_reason == "eos" else out.tokens
        approximate += find_approximate_loop(out.text or tokens) is not None
        loop = find_loop(tokens)
        if loop is None:
            continue
        periods.append(loop.period)
        for turn in range(min(TURNS, int(loop.repeats))):
            begin = loop.start + turn * loop.period
            turns[turn] += out.logps[begin : begin + loop.period]
    means = tuple(sum(logps) / len(logps) for logps in turns if logps)
    repeated = sum(rep_n(out.tokens, 4) for out in outs) / len(outs)
    return DecoderLoops(decoder, len(outs), tuple(periods), repeated, means, approximate)
