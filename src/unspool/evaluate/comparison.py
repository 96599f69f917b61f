"""Results of `unspool compare`: the outputs of several decoders for the same prompts, with measures."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from unspool import decode
from unspool.evaluate.diversity import distinct_n, rep_n, seq_rep_n


@dataclass(frozen=True)
class Answer:
    """The output of one decoder for one prompt."""

    text: str
    tokens: tuple[int, ...]
    logps: tuple[float, ...]
    """log p of each token under the model, before any transform."""
    finish_reason: str

    @property
    def mean_logp(self) -> float:
        """Mean log p of a token, in nats; NaN for an empty text."""
        return sum(self.logps) / len(self.logps) if self.logps else nan

    @property
    def loop(self) -> int | None:
        """Period of the loop at the end of the text, without EOS; None without a loop."""
        loop = decode.find_loop(self.tokens[:-1] if self.finish_reason == "eos" else self.tokens)
        return None if loop is None else loop.period

    @property
    def loops_approximately(self) -> bool:
        """Whether most of the last words repeat, exactly or nearly."""
        return decode.find_approximate_loop(self.text or self.tokens) is not None

    def measures(self) -> dict[str, float | int | None]:
        """Return all measures of this text by name."""
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
    """The outputs of one decoder for all prompts."""

    decoder: str
    spec: str
    """The decoder as a string for `unspool.parse`."""
    answers: tuple[Answer, ...]
    """One per prompt."""
    seconds: float
    """Total time."""

    def measures(self) -> dict[str, float]:
        """Return all measures of the answers together by name; rep-4 is a mean over answers."""
        tokens = [answer.tokens for answer in self.answers]
        logps = [logp for answer in self.answers for logp in answer.logps]
        return {
            "mean_logp": sum(logps) / len(logps) if logps else nan,
            "rep_4": seq_rep_n(tokens, 4),
            "distinct_1": distinct_n(tokens, 1),
            "distinct_2": distinct_n(tokens, 2),
            "length": sum(map(len, tokens)) / len(tokens),
            "tokens_per_second": sum(map(len, tokens)) / self.seconds,
        }

    def cells(self) -> tuple[str, ...]:
        """Return log p, rep-4, distinct-1, distinct-2, loops, length and tokens/s as cells of a table."""
        *shares, length, speed = self.measures().values()
        return (*(f"{share:.2f}" for share in shares), self.loop_words, f"{length:.0f}", f"{speed:.1f}")

    @property
    def loops(self) -> list[int]:
        """Periods of the answers that end in a loop."""
        return [answer.loop for answer in self.answers if answer.loop is not None]

    @property
    def loop_words(self) -> str:
        """Loops for a table cell: "–", the period of a single answer, or "loops/answers +approximate≈"."""
        approximate = sum(answer.loop is None and answer.loops_approximately for answer in self.answers)
        if len(self.answers) == 1:
            return str(self.loops[0]) if self.loops else "≈" if approximate else "–"
        if not self.loops and not approximate:
            return "–"
        exact = f"{len(self.loops)}/{len(self.answers)}"
        return f"{exact} +{approximate}≈" if approximate else exact
