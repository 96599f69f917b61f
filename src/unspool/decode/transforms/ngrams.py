"""Repeated n-grams: ban them (no_repeat_ngram), or penalise long repetitions (DRY)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import Checked, flag, integer, number, token_ids
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.penalties import tokens_so_far
from unspool.decode.transforms.scores import ban_each, peaks
from unspool.interfaces import Step


@dataclass(frozen=True)
class NoRepeatNgram(Checked):
    """No repeated n-grams: ban every token that would complete an n-gram for the second time.

        ban x  ⇔  (y_{t−n+1}, …, y_{t−1}, x) occurs in y_{<t}

    Paulus, Xiong & Socher 2018, §2.5 (trigrams, in beam search).
    papers.bib: paulus2018deep

    n = 1 lets every token occur once. If `prompt`, n-grams of the prompt count, as in Hugging Face, whose
    banned set this is. If all remaining tokens of a row are banned, see `scores.ban`.
    """

    n: int = integer(at_least=1, advice="Common values are 3 and 4.")
    prompt: bool = flag(True, advice="It is whether n-grams of the prompt count.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
        peaks(scores_NV, history)
        V = scores_NV.shape[1]
        banned = [
            (row, token)
            for row, hypothesis in enumerate(history)
            for token in self._completions(tokens_so_far(hypothesis, self.prompt))
            if token < V
        ]
        return ban_each(scores_NV, step, banned)

    def _completions(self, tokens: tuple[int, ...]) -> set[int]:
        """The tokens that followed earlier occurrences of the last n − 1 tokens."""
        start = tokens[len(tokens) - self.n + 1 :] if len(tokens) >= self.n else None
        ends = range(self.n - 1, len(tokens))
        return {tokens[end] for end in ends if tokens[end - self.n + 1 : end] == start}


MAX_MATCH = 50
MAX_PENALTY = 1e9


@dataclass(frozen=True)
class DRY(Checked):
    """DRY, don't repeat yourself: penalise tokens that continue a repetition, more for a longer one.

        n(x) = length of the longest suffix of the text that earlier in the text was followed by x
        score′(x) = score(x) − λ · b^(n(x) − a)   if n(x) ≥ a

    Weidmann 2024.
    papers.bib: weidmann2024dry

    λ is `multiplier`, b is `base`, a is `allowed`. A match never contains a token of `breakers`, and breakers
    are never penalised. `last` limits the text to its last tokens (None: all of it). If `prompt`, the prompt
    is a part of the text, as in other tools. A match has at most 50 tokens and a penalty is at most 10⁹, so
    that a score never becomes −∞. Differs from the original: breakers are token ids.
    """

    multiplier: float = number(0.8, at_least=0, advice="The author recommends 0.8; 0 is off.")
    base: float = number(1.75, at_least=1, advice="The author recommends 1.75.")
    allowed: int = integer(2, at_least=1, advice="The author recommends 2.")
    breakers: tuple[int, ...] = token_ids(())
    last: int | None = integer(None, at_least=1, advice="None reads the whole text.")
    prompt: bool = flag(True, advice="It is whether the prompt counts.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV, history)
        out_NV = scores_NV.clone()
        for row, hypothesis in enumerate(history):
            for token, penalty in self.penalties(hypothesis).items():
                if token < scores_NV.shape[1]:
                    out_NV[row, token] -= penalty
        return out_NV

    def penalties(self, hypothesis: Hypothesis) -> dict[int, float]:
        """Token → penalty for the next token of a hypothesis."""
        tokens = tokens_so_far(hypothesis, self.prompt)[-(self.last or 0) :]
        matches: dict[int, int] = {}
        for end, last in enumerate(tokens[:-1]):
            token = tokens[end + 1]
            if last == tokens[-1] and token not in self.breakers:
                matches[token] = max(matches.get(token, 0), self._match(tokens, end))
        return {token: self._penalty(match) for token, match in matches.items() if match >= self.allowed}

    def _penalty(self, match: int) -> float:
        # Compare logarithms first, because powers of a large base overflow.
        if math.log(self.base) * (match - self.allowed) > math.log(MAX_PENALTY):
            return MAX_PENALTY if self.multiplier > 0 else 0.0
        return min(self.multiplier * self.base ** (match - self.allowed), MAX_PENALTY)

    def _match(self, tokens: tuple[int, ...], end: int) -> int:
        """Length of the common suffix of the tokens up to `end` and of all tokens."""
        length = 0
        while length < min(MAX_MATCH, end + 1):
            token = tokens[-1 - length]
            if tokens[end - length] != token or token in self.breakers:
                break
            length += 1
        return length
