"""Measure the outputs of a system, and compare two systems.

Always: length, repetition, loops and diversity. With references: BLEU, chrF, TER and length ratio. With a
model: perplexity (after the prompts, if given) and coherence. With a model and human texts: MAUVE. Functions
of sums over texts have bootstrap intervals and paired tests. Notes explain measures that are left out.
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
    """Measures of the outputs of one system."""

    system: str
    texts: int
    empty: int
    """Number of empty outputs."""
    values: Mapping[str, float]
    """All measures by name."""
    summed: Mapping[str, SummedMeasure]
    """The measures that are functions of sums over texts."""
    notes: tuple[str, ...] = ()
    """Reasons for measures that are missing."""
    signatures: Mapping[str, str] = field(default_factory=dict)
    """How a measure was computed, if there is more than one way."""
    spreads: Mapping[str, Interval] = field(default_factory=dict)
    """Ranges of repeated measures: MAUVE over clusterings."""

    def intervals(self, *, samples: int = SAMPLES, seed: int = 0) -> dict[str, Interval]:
        """Return bootstrap intervals of `summed`, and `spreads`."""
        intervals = {name: bootstrap(it, samples=samples, seed=seed) for name, it in self.summed.items()}
        return {**intervals, **self.spreads}


@dataclass
class _Collector:
    values: dict[str, float] = field(default_factory=dict)
    summed: dict[str, SummedMeasure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)
    spreads: dict[str, Interval] = field(default_factory=dict)

    def put(self, name: str, measure: SummedMeasure) -> None:
        """Add a measure with its counts."""
        self.summed[name], self.values[name] = measure, measure.value

    def add(self, name: str, measure: Callable[[], SummedMeasure]) -> None:
        """Add a measure; add a note instead if it raises a ValueError."""
        try:
            self.put(name, measure())
        except ValueError as error:
            self.notes.append(f"{name}: {error}")

    def add_value(self, name: str, measure: Callable[[], float], signature: str = "") -> None:
        """Add a measure of all texts together; add a note instead if it raises a ValueError."""
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
    """Measure the outputs of a system. `tokens` splits a text into the tokens that diversity counts.

    For MAUVE all texts are cut to `mauve_length` tokens: use the same length for all systems
    (`common_length`).
    """
    for name, values in {
        "texts": texts,
        "prompts": prompts,
        "references": references,
        "human": human,
    }.items():
        if values is not None or name == "texts":
            _check_strings(name, values)
    if model is not None:
        check_model(model)
    if not function_of(tokens, 1):
        raise TypeError(f"tokens is {shown(tokens)}, but must be a function from a text to its tokens")
    for name, values in {"prompts": prompts, "references": references}.items():
        if values is not None and len(values) != len(texts):
            raise ValueError(f"{system} has {len(texts)} outputs but {len(values)} {name}")
    if not any(text.strip() for text in texts):
        raise ValueError(f"all outputs of {system} are empty")
    measures = _Collector()
    _measure_diversity(measures, [_check_tokens(tokens(text)) for text in texts])
    measures.add(
        "approximate loops",
        lambda: mean_of([float(find_approximate_loop(text) is not None) for text in texts]),
    )
    measures.signatures["approximate loops"] = (
        f"texts whose last {WINDOW} words repeat by {THRESHOLD:.0%} or more, exactly or nearly"
    )
    if references is not None:
        signatures = overlap(texts, references).signatures
        measures.signatures |= {NAMES[name]: it for name, it in signatures.items()}
        for name, measure in overlap_measures(texts, references).items():
            measures.put(NAMES[name], measure)
        words = [[it.split() for it in these] for these in (texts, references)]
        measures.add("length ratio", lambda: length_ratio(*words))
    if model is not None:
        _measure_with_model(measures, model, texts, prompts)
        if human is not None:
            _measure_mauve(measures, model, human, _drop_empty(texts), mauve_length)
    empty = sum(not text.strip() for text in texts)
    return SystemMeasures(
        system,
        len(texts),
        empty,
        measures.values,
        measures.summed,
        tuple(measures.notes),
        measures.signatures,
        measures.spreads,
    )


def paired_tests(
    first: SystemMeasures, second: SystemMeasures, *, samples: int = SAMPLES, seed: int = 0
) -> dict[str, PairedTest]:
    """Test the difference of each measure that both systems have in `summed`."""
    for it in (first, second):
        if not isinstance(it, SystemMeasures):
            raise TypeError(f"{shown(it)} is not a SystemMeasures: create one with measure_system")
    if first.texts != second.texts:
        raise ValueError(
            f"{first.system} has {first.texts} outputs but {second.system} {second.texts}: paired tests need "
            "the same prompts"
        )
    return {
        name: approximate_randomisation(first.summed[name], second.summed[name], samples=samples, seed=seed)
        for name in first.summed
        if name in second.summed
    }


NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}


def _measure_diversity(measures: _Collector, texts: list[Sequence[Hashable]]) -> None:
    measures.add("length", lambda: mean_of([len(text) for text in texts]))
    measures.add("rep-4", lambda: mean_of([rep_n(text, 4) for text in texts]))
    measures.add("loops", lambda: mean_of([float(find_loop(text) is not None) for text in texts]))
    for n in (1, 2):
        level = f"corpus level: distinct {n}-grams of all texts / tokens; falls with more texts"
        measures.add_value(f"distinct-{n}", lambda n=n: distinct_n(texts, n), level)  # type: ignore[misc]
    measures.add_value(
        "Zipf", lambda: zipf_coefficient(texts), f"slope over the {ZIPF_TOP:,} most frequent tokens"
    )
    measures.add_value("self-BLEU", lambda: self_bleu(texts))


def _measure_mauve(
    measures: _Collector, model: StepModel, human: Sequence[str], texts: Sequence[str], length: int | None
) -> None:
    try:
        it = text_mauve(model, human, texts, length=length)
    except ValueError as error:
        measures.notes.append(f"MAUVE: {error}")
        return
    measures.values["MAUVE"], measures.signatures["MAUVE"] = it.value, str(it)
    measures.spreads["MAUVE"] = Interval(it.value, it.low, it.high, 1.0)


def _measure_with_model(
    measures: _Collector, model: StepModel, texts: Sequence[str], prompts: Sequence[str] | None
) -> None:
    measures.add("perplexity", lambda: perplexity_of(*_total_nats(model, texts, prompts)))
    nonempty = [index for index, text in enumerate(texts) if text.strip()]
    if prompts is None or model.is_encoder_decoder or not nonempty:
        return
    try:
        result = coherence(
            model, [prompts[index] for index in nonempty], [texts[index] for index in nonempty]
        )
    except ValueError as error:
        measures.notes.append(f"coherence: {error}")
        return
    # Empty texts have no coherence, and paired tests need a value for every text.
    for name, values in {"fit": result.fits, "gain": result.gains, "similarity": result.similarities}.items():
        if values and len(nonempty) == len(texts):
            measures.put(name, mean_of(values))
        elif values:
            measures.values[name] = sum(values) / len(values)


def _total_nats(
    model: StepModel, texts: Sequence[str], prompts: Sequence[str] | None
) -> tuple[list[float], list[float]]:
    """Return −Σ log p and the number of tokens of each text; 0 and 0 for texts too short to score."""
    nats, counts = [0.0] * len(texts), [0.0] * len(texts)
    if prompts is not None:
        nonempty = [index for index, text in enumerate(texts) if text]
        scored = score(
            model,
            [prompts[index] for index in nonempty],
            [texts[index] for index in nonempty],
            end=model.is_encoder_decoder,
        )
        for index, it in zip(nonempty, scored, strict=True):
            nats[index], counts[index] = -it.total, float(len(it.tokens))
        return nats, counts
    if model.tokenizer is None:
        raise ValueError("the model needs a tokenizer to read texts")
    scorable = [index for index, text in enumerate(texts) if len(model.tokenizer.encode(text)) > 1]
    if not scorable:
        raise ValueError("no output has at least two tokens")
    for seen in read(model, forced(model, [texts[index] for index in scorable])):
        logp_M = seen.logp_MV.gather(1, seen.token_M[:, None])[:, 0].double()
        for index, logp in zip(seen.text_M.tolist(), logp_M.tolist(), strict=True):
            nats[scorable[index]] -= logp
            counts[scorable[index]] += 1
    return nats, counts


def _check_strings(name: str, texts: Any) -> None:
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
        raise TypeError(f"{name} is {shown(texts)}, but must be a list of texts")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{name} {index} is {shown(text)}, but must be a string")


def _check_tokens(measures: Any) -> Sequence[Hashable]:
    if not isinstance(measures, Sequence):
        raise TypeError(f"tokens returned {shown(measures)}, but must return a list of tokens")
    return measures


def _drop_empty(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if text.strip()]
