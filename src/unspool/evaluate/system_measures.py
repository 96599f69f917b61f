"""Everything that can be said of a system's outputs, from what there is beside them.

Always: how long they are, how much they repeat and how they vary. With references: BLEU, chrF, TER and the
ratio of lengths. With a model: perplexity (after their prompts, where there are any) and coherence. With a
model and texts of people: MAUVE. What is a function of sums over texts has an interval, and two systems are
compared on it text by text; what cannot be measured is left out, and it is said why.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unspool.decode.arguments import function_of, shown
from unspool.decode.combine.lockstep import check_model
from unspool.decode.loops import THRESHOLD, WINDOW, find_approximate_loop, find_loop
from unspool.decode.score import score
from unspool.evaluate.diversity import ZIPF_TOP, distinct_n, rep_n, zipf_coefficient
from unspool.evaluate.mauve_curve import text_mauve
from unspool.evaluate.prompt_coherence import coherence
from unspool.evaluate.reference_overlap import length_ratio, overlap, overlap_measures, self_bleu
from unspool.evaluate.significance import SAMPLES, Interval, PairedTest, approximate_randomisation, bootstrap
from unspool.evaluate.summed_measure import SummedMeasure, mean_of, perplexity_of
from unspool.evaluate.teacher_forcing import forced, read
from unspool.interfaces import StepModel

Tokenize = Callable[[str], Sequence[Hashable]]


@dataclass(frozen=True)
class SystemMeasures:
    """What one system's outputs are like."""

    system: str
    texts: int
    empty: int
    """Outputs that say nothing."""
    values: Mapping[str, float]
    """Every measure, by name."""
    summed: Mapping[str, SummedMeasure]
    """Those that are functions of sums over texts."""
    notes: tuple[str, ...] = ()
    """What could not be measured, and why."""
    signatures: Mapping[str, str] = field(default_factory=dict)
    """How a measure was computed, where there is more than one way."""
    spreads: Mapping[str, Interval] = field(default_factory=dict)
    """Ranges of measures that are computed several times: MAUVE over clusterings."""

    def intervals(self, *, samples: int = SAMPLES, seed: int = 0) -> dict[str, Interval]:
        """The bootstrap intervals of those measures that have one, and the ranges of others."""
        found = {name: bootstrap(it, samples=samples, seed=seed) for name, it in self.summed.items()}
        return {**found, **self.spreads}


@dataclass
class _Found:
    values: dict[str, float] = field(default_factory=dict)
    summed: dict[str, SummedMeasure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)
    spreads: dict[str, Interval] = field(default_factory=dict)

    def put(self, name: str, measure: SummedMeasure) -> None:
        """A measure with its counts."""
        self.summed[name], self.values[name] = measure, measure.value

    def add(self, name: str, measure: Callable[[], SummedMeasure]) -> None:
        """The same, unless it cannot be measured."""
        try:
            self.put(name, measure())
        except ValueError as error:
            self.notes.append(f"{name}: {error}")

    def say(self, name: str, measure: Callable[[], float], signature: str = "") -> None:
        """A measure of all texts together."""
        try:
            self.values[name] = measure()
        except ValueError as error:
            self.notes.append(f"{name}: {error}")
            return
        if signature:
            self.signatures[name] = signature


def measure_system(
    system: str,
    texts: Sequence[str],
    *,
    prompts: Sequence[str] | None = None,
    references: Sequence[str] | None = None,
    human: Sequence[str] | None = None,
    model: StepModel | None = None,
    tokens: Tokenize = str.split,
    mauve_length: int | None = None,
) -> SystemMeasures:
    """Measure outputs, each a string. `tokens` says what diversity counts: words, unless asked otherwise.

    For MAUVE all texts are cut to `mauve_length` tokens; systems compare only if it is the same for all
    (`common_length`).
    """
    for name, listed in {
        "texts": texts,
        "prompts": prompts,
        "references": references,
        "human": human,
    }.items():
        if listed is not None or name == "texts":
            _strings(name, listed)
    if model is not None:
        check_model(model)
    if not function_of(tokens, 1):
        raise TypeError(f"tokens is {shown(tokens)}, but must be a function from a text to its tokens.")
    for name, beside in {"prompts": prompts, "references": references}.items():
        if beside is not None and len(beside) != len(texts):
            raise ValueError(f"{system} has {len(texts)} outputs, but there are {len(beside)} {name}")
    if not any(text.strip() for text in texts):
        raise ValueError(f"{system} has no output that says anything: there is nothing to measure")
    found = _Found()
    _variety(found, [_sequence(tokens(text)) for text in texts])
    found.add(
        "approximate loops",
        lambda: mean_of([float(find_approximate_loop(text) is not None) for text in texts]),
    )
    found.signatures["approximate loops"] = (
        f"texts whose last {WINDOW} words repeat by {THRESHOLD:.0%} or more, exactly or nearly"
    )
    if references is not None:
        signatures = overlap(texts, references).signatures
        found.signatures |= {NAMES[name]: it for name, it in signatures.items()}
        for name, measure in overlap_measures(texts, references).items():
            found.put(NAMES[name], measure)
        words = [[it.split() for it in these] for these in (texts, references)]
        found.add("length ratio", lambda: length_ratio(*words))
    if model is not None:
        _judged(found, model, texts, prompts)
        if human is not None:
            _mauve(found, model, human, _some(texts), mauve_length)
    empty = sum(not text.strip() for text in texts)
    return SystemMeasures(
        system,
        len(texts),
        empty,
        found.values,
        found.summed,
        tuple(found.notes),
        found.signatures,
        found.spreads,
    )


def paired_tests(
    first: SystemMeasures, second: SystemMeasures, *, samples: int = SAMPLES, seed: int = 0
) -> dict[str, PairedTest]:
    """Every measure that both have of each text: the difference, and whether it is more than chance."""
    for it in (first, second):
        if not isinstance(it, SystemMeasures):
            raise TypeError(f"{shown(it)} must be what measure_system found of a system")
    if first.texts != second.texts:
        raise ValueError(
            f"{first.system} has {first.texts} outputs and {second.system} {second.texts}: systems are "
            "compared text by text, on the same prompts"
        )
    return {
        name: approximate_randomisation(first.summed[name], second.summed[name], samples=samples, seed=seed)
        for name in first.summed
        if name in second.summed
    }


NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}


def _variety(found: _Found, texts: list[Sequence[Hashable]]) -> None:
    found.add("length", lambda: mean_of([len(text) for text in texts]))
    found.add("rep-4", lambda: mean_of([rep_n(text, 4) for text in texts]))
    found.add("loops", lambda: mean_of([float(find_loop(text) is not None) for text in texts]))
    for n in (1, 2):
        level = f"corpus level: different {n}-grams of all texts together / tokens; falls with more texts"
        found.say(f"distinct-{n}", lambda n=n: distinct_n(texts, n), level)  # type: ignore[misc]
    found.say("Zipf", lambda: zipf_coefficient(texts), f"slope over the {ZIPF_TOP:,} most frequent tokens")
    found.say("self-BLEU", lambda: self_bleu(texts))


def _mauve(
    found: _Found, model: StepModel, human: Sequence[str], texts: Sequence[str], length: int | None
) -> None:
    try:
        it = text_mauve(model, human, texts, length=length)
    except ValueError as error:
        found.notes.append(f"MAUVE: {error}")
        return
    found.values["MAUVE"], found.signatures["MAUVE"] = it.value, str(it)
    found.spreads["MAUVE"] = Interval(it.value, it.low, it.high, 1.0)


def _judged(found: _Found, model: StepModel, texts: Sequence[str], prompts: Sequence[str] | None) -> None:
    found.add("perplexity", lambda: perplexity_of(*_nats(model, texts, prompts)))
    said = [place for place, text in enumerate(texts) if text.strip()]
    if prompts is None or model.is_encoder_decoder or not said:
        return
    try:
        both = coherence(model, [prompts[place] for place in said], [texts[place] for place in said])
    except ValueError as error:
        found.notes.append(f"coherence: {error}")
        return
    # An empty text has no coherence, and without it systems cannot be compared text by text.
    for name, values in {"fit": both.fits, "gain": both.gains, "similarity": both.similarities}.items():
        if values and len(said) == len(texts):
            found.put(name, mean_of(values))
        elif values:
            found.values[name] = sum(values) / len(values)


def _nats(
    model: StepModel, texts: Sequence[str], prompts: Sequence[str] | None
) -> tuple[list[float], list[float]]:
    """−Σ log p and the number of tokens of each text; 0 and 0 of one that is too short to be scored."""
    nats, counts = [0.0] * len(texts), [0.0] * len(texts)
    if prompts is not None:
        said = [place for place, text in enumerate(texts) if text]
        scored = score(
            model, [prompts[at] for at in said], [texts[at] for at in said], end=model.is_encoder_decoder
        )
        for place, it in zip(said, scored, strict=True):
            nats[place], counts[place] = -it.total, float(len(it.tokens))
        return nats, counts
    if model.tokenizer is None:
        raise ValueError("the model has no tokenizer, and cannot read texts")
    long = [place for place, text in enumerate(texts) if len(model.tokenizer.encode(text)) > 1]
    if not long:
        raise ValueError("no output has two tokens, of which the second could be scored")
    for seen in read(model, forced(model, [texts[at] for at in long])):
        logp_M = seen.logp_MV.gather(1, seen.token_M[:, None])[:, 0].double()
        for at, logp in zip(seen.text_M.tolist(), logp_M.tolist(), strict=True):
            nats[long[at]] -= logp
            counts[long[at]] += 1
    return nats, counts


def _strings(name: str, texts: Any) -> None:
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
        raise TypeError(f"{name} is {shown(texts)}, but must be a list of texts.")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{name} {place} is {shown(text)}, but must be a string.")


def _sequence(found: Any) -> Sequence[Hashable]:
    if not isinstance(found, Sequence):
        raise TypeError(f"tokens gave {shown(found)} of a text, but must give a list of tokens.")
    return found


def _some(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if text.strip()]
