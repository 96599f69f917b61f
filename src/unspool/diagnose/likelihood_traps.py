"""The likelihood trap: is the text that a model finds most probable one that people would not write?

    log p a token of:  a phrase said again and again · what people wrote · the same words shuffled
                       · what the model says by greedy search, and by sampling

Zhang et al. 2021, §4, for the name (papers.bib: zhang2021trading); Holtzman et al. 2020, §4 and figure 2
(papers.bib: holtzman2020curious), for people's words, which are far less probable than a search's. The trap
is there where repetition is more probable than what people wrote, although nonsense is less: between the two
extremes probability does not tell what is good.

The repeated phrase is the beginning of what people wrote, so that its first turn is as probable as theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from unspool.decode.arguments import as_whole
from unspool.decode.combine.lockstep import check_model
from unspool.decode.generate import generate
from unspool.decode.score import score
from unspool.decode.search import Greedy, Sample
from unspool.evaluate.significance import Interval, bootstrap
from unspool.evaluate.summed_measure import mean_of
from unspool.evaluate.teacher_forcing import token_pairs
from unspool.interfaces import Decoder, StepModel

REPEATED, HUMAN, NONSENSE, GREEDY, SAMPLED = "repeated", "human", "shuffled", "greedy", "sampled"


@dataclass(frozen=True)
class LikelihoodTrap:
    """log p a token of each kind of text."""

    kinds: Mapping[str, Interval]
    """The mean over texts, with its interval."""
    by_text: Mapping[str, tuple[float, ...]]

    @property
    def trapped(self) -> bool:
        """Whether repetition is more probable than what people wrote, and that than nonsense."""
        repeated, human, nonsense = (self.kinds[it].value for it in (REPEATED, HUMAN, NONSENSE))
        return repeated > human > nonsense

    @property
    def verdict(self) -> str:
        """In words."""
        numbers = (
            f"a repeated phrase has log p {self.kinds[REPEATED].value:.2f} a token, what people wrote "
            f"{self.kinds[HUMAN].value:.2f}, its words shuffled {self.kinds[NONSENSE].value:.2f}"
        )
        if self.trapped:
            return f"{numbers}: the likelihood trap is there, for the dullest text is the most probable"
        if self.kinds[HUMAN].value <= self.kinds[NONSENSE].value:
            return (
                f"{numbers}: the model does not know these words from nonsense, and there is nothing to say"
            )
        return f"{numbers}: no likelihood trap, for repetition is less probable than what people wrote"


def likelihood_trap(
    model: StepModel,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    length: int = 64,
    phrase: int = 8,
    seed: int = 0,
) -> LikelihoodTrap:
    """On texts that people wrote: a prompt (or source) and what follows, as tokens, `length` at most."""
    check_model(model)
    length = as_whole("length", length, at_least=2, advice="It is how many tokens are scored.")
    phrase = as_whole("phrase", phrase, at_least=1, advice="It is how many tokens are repeated.")
    seed = as_whole("seed", seed, at_least=0, advice="The same seed gives the same texts.")
    pairs = [(prompt, right[:length]) for prompt, right in token_pairs(texts) if len(right) > phrase]
    if not pairs:
        raise ValueError(
            f"no text goes on for more than {phrase} tokens after its prompt: give longer texts, or a "
            "shorter phrase"
        )
    prompts = [prompt for prompt, _ in pairs]
    dice = Random(seed)
    said = {
        REPEATED: [(right[:phrase] * (len(right) // phrase + 1))[: len(right)] for _, right in pairs],
        HUMAN: [right for _, right in pairs],
        NONSENSE: [tuple(dice.sample(right, len(right))) for _, right in pairs],
    }
    by_text = {
        kind: tuple(it.total / len(it.tokens) for it in score(model, prompts, rows))
        for kind, rows in said.items()
    }
    own: dict[str, Decoder] = {GREEDY: Greedy(), SAMPLED: Sample()}
    for kind, decoder in own.items():
        outs = generate(model, prompts, decoder, max_new_tokens=length, seed=seed)
        by_text[kind] = tuple(sum(out.logps) / len(out.logps) for out in outs if out.logps)
    kinds = {kind: bootstrap(mean_of(values), seed=seed) for kind, values in by_text.items()}
    return LikelihoodTrap(kinds, by_text)
