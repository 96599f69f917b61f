"""The likelihood trap: are the most probable texts of a model unlike human text?

    log p per token of:  a repeated phrase · human text · the same tokens shuffled · greedy and sampled text

Zhang et al. 2021, §4, for the name (papers.bib: zhang2021trading). Holtzman et al. 2020, §4 and figure 2
(papers.bib: holtzman2020curious), for human text, which is far less probable than search results. A model is
in the trap if repetition is more probable than human text, although shuffled text is less probable: then
likelihood does not indicate quality.

The repeated phrase is the start of the human text, so its first occurrence is equally probable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from unspool.arguments import as_int
from unspool.decode.generate import generate
from unspool.decode.lockstep import check_model
from unspool.decode.score import score
from unspool.decode.search import Greedy, Sample
from unspool.evaluate.significance import Interval, bootstrap, mean_of
from unspool.evaluate.teacher_forcing import token_pairs
from unspool.interfaces import Decoder, StepModel

REPEATED, HUMAN, SHUFFLED, GREEDY, SAMPLED = "repeated", "human", "shuffled", "greedy", "sampled"


@dataclass(frozen=True)
class LikelihoodTrap:
    """log p per token of each kind of text."""

    kinds: Mapping[str, Interval]
    """Mean over texts, with its interval."""
    by_text: Mapping[str, tuple[float, ...]]

    @property
    def trapped(self) -> bool:
        """Whether repetition is more probable than human text, and that more than shuffled text."""
        repeated, human, shuffled = (self.kinds[kind].value for kind in (REPEATED, HUMAN, SHUFFLED))
        return repeated > human > shuffled

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        summary = (
            f"log p per token is {self.kinds[REPEATED].value:.2f} for a repeated phrase, "
            f"{self.kinds[HUMAN].value:.2f} for human text, {self.kinds[SHUFFLED].value:.2f} shuffled"
        )
        if self.trapped:
            return f"{summary}: likelihood trap, repetition is more probable than human text"
        if self.kinds[HUMAN].value <= self.kinds[SHUFFLED].value:
            return f"{summary}: no verdict, the model does not distinguish these texts from shuffled ones"
        return f"{summary}: no likelihood trap, repetition is less probable than human text"


def likelihood_trap(
    model: StepModel,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    length: int = 64,
    phrase: int = 8,
    seed: int = 0,
) -> LikelihoodTrap:
    """Score human texts and their variants: pairs of a prompt (or source) and a text, as token ids.

    Only the first `length` tokens of a text count; `phrase` of them are repeated.
    """
    check_model(model)
    length = as_int("length", length, at_least=2, advice="It is the number of scored tokens.")
    phrase = as_int("phrase", phrase, at_least=1, advice="It is the number of repeated tokens.")
    seed = as_int("seed", seed, at_least=0, advice="The same seed gives the same texts.")
    pairs = [(prompt, human[:length]) for prompt, human in token_pairs(texts) if len(human) > phrase]
    if not pairs:
        raise ValueError(
            f"no text has more than {phrase} tokens after its prompt: give longer texts or a shorter phrase"
        )
    prompts = [prompt for prompt, _ in pairs]
    rng = Random(seed)
    texts_by_kind = {
        REPEATED: [(human[:phrase] * (len(human) // phrase + 1))[: len(human)] for _, human in pairs],
        HUMAN: [human for _, human in pairs],
        SHUFFLED: [tuple(rng.sample(human, len(human))) for _, human in pairs],
    }
    by_text = {
        kind: tuple(scored.total / len(scored.tokens) for scored in score(model, prompts, rows))
        for kind, rows in texts_by_kind.items()
    }
    decoders: dict[str, Decoder] = {GREEDY: Greedy(), SAMPLED: Sample()}
    for kind, decoder in decoders.items():
        outs = generate(model, prompts, decoder, max_new_tokens=length, seed=seed)
        by_text[kind] = tuple(sum(out.logps) / len(out.logps) for out in outs if out.logps)
    kinds = {kind: bootstrap(mean_of(values), seed=seed) for kind, values in by_text.items()}
    return LikelihoodTrap(kinds, by_text)
