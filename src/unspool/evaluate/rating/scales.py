"""What raters are asked, and what they may answer.

A score counts two things that a text is or is not: fluent, and relevant. That is the standard of Miao et al.
2019, appendix B (papers.bib: miao2019kernelized). Their word for the second is "relative to the input
question": the text answers, or goes on with, what stands before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """One question about one text, or about two."""

    name: str
    question: str
    choices: Mapping[str, str]
    """What may be answered → what it means, in the order of the scale (for agreement that knows of near)."""
    texts: int
    """How many texts an item shows."""
    guide: str
    """What raters should read first."""

    def check(self, choice: str) -> str:
        """The choice, if it is one."""
        if not isinstance(choice, str) or choice not in self.choices:
            said = ", ".join(f"{key} ({words})" for key, words in self.choices.items())
            raise ValueError(f"{choice!r:.40} is no answer to {self.question!r}: choose one of {said}")
        return choice


SCORE = Scale(
    name="score",
    question="How good is the text?",
    choices={
        "0": "neither fluent nor relevant",
        "1": "either fluent or relevant, but not both",
        "2": "both fluent and relevant",
    },
    texts=1,
    guide=(
        "Fluent: it reads as if somebody who knows the language had written it, with no broken grammar and "
        "no words that make no sense together.\n"
        "Relevant: it answers, or goes on with, what stands before it, and not some other question.\n"
        "Judge the two apart: a fluent answer to another question is a 1, and so is a broken one to this."
    ),
)
PREFERENCE = Scale(
    name="preference",
    question="Which text is the better one?",
    choices={"a": "the first", "=": "neither: they are equally good", "b": "the second"},
    texts=2,
    guide=(
        "Prefer the text that is more fluent and goes better with what stands before it, not the longer "
        "one.\n"
        "Which system wrote which is not told, and changes sides from item to item."
    ),
)

SCALES: dict[str, Scale] = {"preference": PREFERENCE, "score": SCORE}
