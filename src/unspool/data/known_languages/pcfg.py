"""A probabilistic context-free grammar: the truth sums over all trees, of which a prefix may have many.

    I(A, i, i) = p(A → word_i)
    I(A, i, k) = Σ_{B,C} p(A → B C) Σ_{i ≤ j < k} I(B, i, j) · I(C, j+1, k)
    Q = (1 − L)⁻¹,   L(A, B) = Σ_C p(A → B C)
    P(A, n+1) = Σ_D Q(A, D) p(D → y)
    P(A, i) = Σ_D Q(A, D) Σ_{B,C} p(D → B C) Σ_{i ≤ j ≤ n} I(B, i, j) · P(C, j+1)
    p(y | word₁ … wordₙ) ∝ P(S, 1),   p(EOS | word₁ … wordₙ) ∝ I(S, 1, n)

I: the words i … k are an A. P: the words i … n, and then y, begin an A. Q: a D begins an A, however deep.

Papers: Jelinek and Lafferty 1991 (papers.bib: jelinek1991computation), for grammars in Chomsky's normal form;
that the probabilities of all trees add up to 1 is checked as by Booth and Thompson 1973
(papers.bib: booth1973applying).

Differs from the papers: P is computed for all y at once, through the (A, A) matrix that it is linear in.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

from unspool.data.known_languages.known_language import KnownLanguage, Probabilities
from unspool.tokenization.vocabulary import EOS_ID, SPECIALS

ENGLISH = (
    *("S -> NP VP 1", "PP -> P NP 1"),
    *("NP -> Det N 0.7", "NP -> NP PP 0.15", "NP -> she 0.1", "NP -> he 0.05"),
    *("VP -> V NP 0.6", "VP -> VP PP 0.2", "VP -> sleeps 0.15", "VP -> laughs 0.05"),
    *("Det -> the 0.6", "Det -> a 0.3", "Det -> every 0.1"),
    *("N -> A N 0.2", "N -> dog 0.3", "N -> girl 0.2", "N -> park 0.2", "N -> telescope 0.1"),
    *("A -> old 0.6", "A -> small 0.4"),
    *("V -> sees 0.7", "V -> likes 0.3"),
    *("P -> in 0.5", "P -> with 0.4", "P -> near 0.1"),
)
"""Who has the telescope is left open: a phrase belongs to the last noun, to one before it, or to the verb."""


@dataclass(frozen=True, eq=False)
class Chart:
    """I(A, i, k) of a prefix, (n, n, nonterminals), where the most probable rule of each word counts as 1."""

    inside: NDArray[np.float64]


@dataclass(frozen=True)
class PCFG(KnownLanguage[Chart]):
    """Sentences of the first rule's left side. A rule is "A -> B C 0.7" or "A -> word 0.3"."""

    rules: tuple[str, ...] = ENGLISH
    """In Chomsky's normal form; without them, those of a few English sentences."""

    def __post_init__(self) -> None:
        totals: defaultdict[str, float] = defaultdict(float)
        for left, _, chance in self._parsed:
            totals[left] += chance
        for left, total in totals.items():
            if abs(total - 1.0) > 1e-9:
                raise ValueError(f"the rules of {left} have probabilities that add up to {total:g}, not to 1")
        for left, right, _ in self._parsed:
            if len(right) == 2 and (absent := [it for it in right if it not in totals]):
                raise ValueError(f"{left} -> {' '.join(right)}: there is no rule for {absent[0]}")
            if len(right) == 1 and right[0] in totals:
                raise ValueError(
                    f"{left} -> {right[0]}: one symbol alone must be a word; "
                    f"put the rules of {right[0]} in its place"
                )
        growth = max(abs(np.linalg.eigvals(self._binary.sum(axis=2) + self._binary.sum(axis=1))))
        if growth >= 1.0 - 1e-9:
            raise ValueError(
                f"trees grow by a factor of {growth:.3g} from one level to the next: sentences would not "
                "end; make rules that end in words more probable"
            )

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Special tokens, then the words from A to Z."""
        return (*SPECIALS, *sorted({right[0] for _, right, _ in self._parsed if len(right) == 1}))

    def start(self) -> Chart:
        """No word yet."""
        return Chart(np.zeros((0, 0, len(self._names))))

    def after(self, state: Chart, token: int) -> Chart:
        """One more column of the chart."""
        n = len(state.inside)
        inside = np.zeros((n + 1, n + 1, len(self._names)))
        inside[:n, :n] = state.inside
        # A common factor of a word cancels out below, and long sentences would underflow without it.
        inside[n, n] = self._lexical[:, token] / self._lexical[:, token].max()
        for i in range(n - 1, -1, -1):
            halves_BC = inside[i, i:n].T @ inside[i + 1 :, n]
            inside[i, n] = np.einsum("abc,bc->a", self._binary, halves_BC)
        return Chart(inside)

    def chances(self, state: Chart) -> Probabilities:
        """Return the probabilities of all next words at once."""
        n, count = len(state.inside), len(self._names)
        through = [np.eye(count)] * (n + 1)
        for i in range(n - 1, -1, -1):
            spans_jAC = np.einsum("abc,jb->jac", self._beginning, state.inside[i, i:])
            through[i] = np.einsum("jac,jcd->ad", spans_jAC, np.stack(through[i + 1 :]))
        row: Probabilities = through[0][0] @ self._corners @ self._lexical
        row[EOS_ID] = state.inside[0, -1, 0] if n else 0.0
        row /= row.sum()
        return row

    def sample(self, random: Random) -> tuple[int, ...]:
        """Rules, drawn from the top down and from left to right."""
        ids = {word: token for token, word in enumerate(self.words)}
        said, waiting = [], [self._names[0]]
        while waiting:
            rights, chances = self._expansions[waiting.pop()]
            (right,) = random.choices(rights, chances)
            if len(right) == 1:
                said.append(ids[right[0]])
            else:
                waiting += right[::-1]
        return tuple(said)

    @cached_property
    def _parsed(self) -> list[tuple[str, tuple[str, ...], float]]:
        if not self.rules:
            raise ValueError('there are no rules; write them as in "S -> NP VP 0.7" and "NP -> she 0.3"')
        return [_parse_rule(rule) for rule in self.rules]

    @cached_property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(left for left, _, _ in self._parsed))

    @cached_property
    def _expansions(self) -> dict[str, tuple[list[tuple[str, ...]], list[float]]]:
        found: dict[str, tuple[list[tuple[str, ...]], list[float]]] = {name: ([], []) for name in self._names}
        for left, right, chance in self._parsed:
            found[left][0].append(right)
            found[left][1].append(chance)
        return found

    @cached_property
    def _binary(self) -> NDArray[np.float64]:
        """p(A → B C)."""
        at = {name: number for number, name in enumerate(self._names)}
        rules_ABC = np.zeros((len(at),) * 3)
        for left, right, chance in self._parsed:
            if len(right) == 2:
                rules_ABC[at[left], at[right[0]], at[right[1]]] += chance
        return rules_ABC

    @cached_property
    def _lexical(self) -> Probabilities:
        """p(A → word), (nonterminals, V)."""
        at = {name: number for number, name in enumerate(self._names)}
        ids = {word: token for token, word in enumerate(self.words)}
        rules_AV = np.zeros((len(at), len(ids)))
        for left, right, chance in self._parsed:
            if len(right) == 1:
                rules_AV[at[left], ids[right[0]]] += chance
        return rules_AV

    @cached_property
    def _corners(self) -> NDArray[np.float64]:
        """Q, with exact zeros: what an inverse leaves there is rounding, and would make words possible."""
        left_AB, one = self._binary.sum(axis=2), np.eye(len(self._names))
        reached_AB = np.linalg.matrix_power((one + left_AB > 0.0).astype(np.float64), len(one)) > 0.0
        return np.where(reached_AB, np.linalg.inv(one - left_AB), 0.0)

    @cached_property
    def _beginning(self) -> NDArray[np.float64]:
        """Σ_D Q(A, D) p(D → B C)."""
        found: NDArray[np.float64] = np.einsum("ad,dbc->abc", self._corners, self._binary)
        return found


def _parse_rule(rule: str) -> tuple[str, tuple[str, ...], float]:
    match rule.split():
        case [left, "->", *right, number] if len(right) in (1, 2):
            try:
                chance = float(number)
            except ValueError:
                chance = -1.0
            if 0.0 < chance <= 1.0:
                return left, tuple(right), chance
    raise ValueError(f'{rule!r} is no rule; write it as in "S -> NP VP 0.7" or "NP -> she 0.3"')
