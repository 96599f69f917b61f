"""No repeated n-grams: ban every token that would complete an n-gram for the second time.

    ban x  ⇔  (y_{t−n+1}, …, y_{t−1}, x) occurs in y_{<t}

Paulus, Xiong & Socher 2018, §2.5 (trigrams, in beam search).
papers.bib: paulus2018deep

n = 1 lets every token occur once. `prompt` says whether n-grams of the prompt count; by default they do, as
in Hugging Face, whose banned set this is. A row whose last tokens are all banned keeps the one that the
model finds most probable among the others; a ban on the whole vocabulary is lifted (see `scores.ban`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import check_bool, check_int, check_number, ids, set_fields
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.penalties import tokens_so_far
from unspool.decode.transforms.scores import ban_each, peaks
from unspool.interfaces import Step


@dataclass(frozen=True)
class NoRepeatNgram:
    """Let no n-gram occur twice."""

    n: int
    prompt: bool = True

    def __post_init__(self) -> None:
        check_int(self, "n", at_least=1, advice="Common values are 3 and 4.")
        check_bool(self, "prompt", advice="It says whether n-grams of the prompt count.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        V = scores_NV.shape[1]
        banned = [
            (row, token)
            for row, hypothesis in enumerate(history)
            for token in self._completions(tokens_so_far(hypothesis, self.prompt))
            if token < V
        ]
        return ban_each(scores_NV, step, banned)

    def _completions(self, said: tuple[int, ...]) -> set[int]:
        """The tokens that followed the last n − 1 tokens before."""
        start = said[len(said) - self.n + 1 :] if len(said) >= self.n else None
        ends = range(self.n - 1, len(said))
        return {said[end] for end in ends if said[end - self.n + 1 : end] == start}


LONGEST = 50
LARGEST = 1e9


@dataclass(frozen=True)
class DRY:
    """Subtract multiplier · base^(match − allowed) from tokens that continue a repetition.

    DRY, don't repeat yourself: penalise tokens that would prolong a repetition, the more the longer it is.

        n(x) = the longest suffix of the text that occurred before with x after it
        score′(x) = score(x) − λ · b^(n(x) − a)   where n(x) ≥ a

    Weidmann 2024.
    papers.bib: weidmann2024dry

    λ is `multiplier`, b is `base`, a is `allowed`. A match never reaches across a token of `breakers`, and
    breakers themselves are never penalised. `last` limits how far back the text is read (None: all of it);
    `prompt` says whether the prompt belongs to the text (it does in the tools that offer DRY, and does by
    default). Matches count up to 50 tokens and a penalty is at most 10⁹, so that nothing overflows; a score
    never becomes −∞. Differs from the original: none where the above holds; breakers are token ids, which the
    caller looks up.
    """

    multiplier: float = 0.8
    base: float = 1.75
    allowed: int = 2
    breakers: tuple[int, ...] = ()
    last: int | None = None
    prompt: bool = True

    def __post_init__(self) -> None:
        check_number(self, "multiplier", at_least=0, advice="The author recommends 0.8; 0 is off.")
        check_number(self, "base", at_least=1, advice="The author recommends 1.75.")
        check_int(self, "allowed", at_least=1, advice="The author recommends 2.")
        set_fields(self, breakers=ids("DRY.breakers", self.breakers, empty=True))
        if self.last is not None:
            check_int(self, "last", at_least=1, advice="None reads the whole text.")
        check_bool(self, "prompt", advice="It says whether a repetition may begin in the prompt.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        out_NV = scores_NV.clone()
        for row, hypothesis in enumerate(history):
            for token, penalty in self.penalties(hypothesis).items():
                if token < scores_NV.shape[1]:
                    out_NV[row, token] -= penalty
        return out_NV

    def penalties(self, hypothesis: Hypothesis) -> dict[int, float]:
        """What is subtracted from the next token of a hypothesis."""
        said = tokens_so_far(hypothesis, self.prompt)[-(self.last or 0) :]
        matches: dict[int, int] = {}
        for end in _occurrences(said):
            token = said[end + 1]
            if token not in self.breakers:
                matches[token] = max(matches.get(token, 0), self._match(said, end))
        return {token: self._penalty(match) for token, match in matches.items() if match >= self.allowed}

    def _penalty(self, match: int) -> float:
        # Powers of a large base overflow: they are compared with the largest penalty as logarithms first.
        if math.log(self.base) * (match - self.allowed) > math.log(LARGEST):
            return LARGEST if self.multiplier > 0 else 0.0
        return min(self.multiplier * self.base ** (match - self.allowed), LARGEST)

    def _match(self, said: tuple[int, ...], end: int) -> int:
        """How many tokens up to `end` are the same as those up to the end of the text."""
        length = 0
        while length < min(LONGEST, end + 1):
            token = said[-1 - length]
            if said[end - length] != token or token in self.breakers:
                break
            length += 1
        return length


def _occurrences(said: tuple[int, ...]) -> list[int]:
    """Where the last token stands elsewhere."""
    return [at for at, token in enumerate(said[:-1]) if token == said[-1]]
