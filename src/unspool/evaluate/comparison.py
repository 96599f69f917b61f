"""The same prompts unspooled by several decoders: what each said, and the measures that tell them apart."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from unspool import decode
from unspool.evaluate.diversity import distinct_n, rep_n, seq_rep_n


@dataclass(frozen=True)
class Answer:
    """What one decoder made of one prompt."""

    text: str
    tokens: tuple[int, ...]
    logps: tuple[float, ...]
    """log p of each token by the model itself."""
    finish_reason: str

    @property
    def mean_logp(self) -> float:
        """Of a token, in nats; not a number where nothing was said."""
        return sum(self.logps) / len(self.logps) if self.logps else nan

    @property
    def loop(self) -> int | None:
        """The period of the loop that it ends in; the token that ended it is no part of one."""
        found = decode.find_loop(self.tokens[:-1] if self.finish_reason == "eos" else self.tokens)
        return None if found is None else found.period

    @property
    def loops_approximately(self) -> bool:
        """Whether most of its last words repeat, exactly or nearly."""
        return decode.find_approximate_loop(self.text or self.tokens) is not None

    def measures(self) -> dict[str, float | int | None]:
        """Every measure of this one text, by name."""
        return {
            "mean_logp": self.mean_logp,
            "rep_4": rep_n(self.tokens, 4),
            "distinct_1": distinct_n([self.tokens], 1),
            "distinct_2": distinct_n([self.tokens], 2),
            "loop": self.loop,
            "approximate_loop": self.loops_approximately,
            "length": len(self.tokens),
        }


@dataclass(frozen=True)
class DecoderRow:
    """What one decoder made of every prompt, measured over all of them."""

    decoder: str
    """Its name."""
    spec: str
    """Its whole specification, as `unspool.parse` reads it."""
    answers: tuple[Answer, ...]
    """One for each prompt."""
    seconds: float
    """How long they took together."""

    def __post_init__(self) -> None:
        if not self.answers:
            raise ValueError(f"decoder {self.decoder!r} has no answer to measure")

    @property
    def tokens(self) -> list[tuple[int, ...]]:
        """The tokens of every answer."""
        return [answer.tokens for answer in self.answers]

    @property
    def mean_logp(self) -> float:
        """Of a token: long answers weigh more."""
        logps = [logp for answer in self.answers for logp in answer.logps]
        return sum(logps) / len(logps) if logps else nan

    @property
    def rep_4(self) -> float:
        """The share of repeated 4-grams, averaged over answers."""
        return seq_rep_n(self.tokens, 4)

    @property
    def distinct_1(self) -> float:
        """Different tokens of all answers, for each token."""
        return distinct_n(self.tokens, 1)

    @property
    def distinct_2(self) -> float:
        """Different pairs of tokens of all answers, for each token."""
        return distinct_n(self.tokens, 2)

    @property
    def loops(self) -> list[int]:
        """The periods of those answers that end in a loop."""
        return [answer.loop for answer in self.answers if answer.loop is not None]

    @property
    def approximate_loops(self) -> int:
        """How many answers end in an approximate loop."""
        return sum(answer.loops_approximately for answer in self.answers)

    @property
    def length(self) -> float:
        """Tokens of an answer, on average."""
        return sum(map(len, self.tokens)) / len(self.answers)

    @property
    def speed(self) -> float:
        """Tokens a second, reading the prompts included."""
        return sum(map(len, self.tokens)) / self.seconds

    @property
    def loop_words(self) -> str:
        """The loops in few words: "–", the period of the only answer, or how many of the answers loop.

        Answers that loop only approximately are added with "≈".
        """
        near = sum(answer.loop is None and answer.loops_approximately for answer in self.answers)
        if len(self.answers) == 1:
            return str(self.loops[0]) if self.loops else "≈" if near else "–"
        if not self.loops and not near:
            return "–"
        exact = f"{len(self.loops)}/{len(self.answers)}"
        return f"{exact} +{near}≈" if near else exact
