"""Measure the outputs of a system, and compare two systems.

Always: length, repetition, loops and diversity. With references: BLEU, chrF, TER and length ratio. With a
model: perplexity (after the prompts, if given) and coherence. With a model and human texts: MAUVE. Functions
of sums over texts have bootstrap intervals and paired tests. Notes explain measures that are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from unspool.arguments import function_of, shown
from unspool.decode.lockstep import check_model
from unspool.decode.loops import THRESHOLD, WINDOW, find_approximate_loop, find_loop
from unspool.decode.score import score
from unspool.evaluate.diversity import ZIPF_TOP, check_texts, distinct_n, rep_n, zipf_coefficient
from unspool.evaluate.mauve_curve import text_mauve
from unspool.evaluate.prompt_coherence import coherence
from unspool.evaluate.reference_overlap import length_ratio, self_bleu, signed_measures
from unspool.evaluate.significance import (
    SAMPLES,
    Interval,
    PairedTest,
    SummedMeasure,
    approximate_randomisation,
    bootstrap,
    mean_of,
    perplexity_of,
)
from unspool.evaluate.teacher_forcing import forced, text_nats
from unspool.interfaces import StepModel

Tokenize = Callable[[str], Sequence[Hashable]]


@dataclass(frozen=True)
class SystemMeasures:
    """Measures of the outputs of one system."""

    system: str
    texts: int
    empty: int
    values: dict[str, float] = field(default_factory=dict)
    """All measures by name."""
    summed: dict[str, SummedMeasure] = field(default_factory=dict)
    """The measures that are functions of sums over texts."""
    notes: list[str] = field(default_factory=list)
    """Reasons for measures that are missing."""
    signatures: dict[str, str] = field(default_factory=dict)
    """How a measure was computed, if there is more than one way."""
    spreads: dict[str, Interval] = field(default_factory=dict)
    """Ranges of repeated measures: MAUVE over clusterings."""

    def intervals(self, *, samples: int = SAMPLES, seed: int = 0) -> dict[str, Interval]:
        """Return bootstrap intervals of `summed`, and `spreads`."""
        intervals = {
            name: bootstrap(measure, samples=samples, seed=seed) for name, measure in self.summed.items()
        }
        return {**intervals, **self.spreads}

    def add(self, name: str, measure: SummedMeasure | float, signature: str = "") -> None:
        """Add a measure."""
        if isinstance(measure, SummedMeasure):
            self.summed[name], measure = measure, measure.value
        self.values[name] = measure
        if signature:
            self.signatures[name] = signature

    @contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """Note the message of a ValueError as the reason for a missing measure."""
        try:
            yield
        except ValueError as error:
            self.notes.append(f"{name}: {error}")


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
    check_texts(texts, "texts", strings=True)
    for name, values in {"prompts": prompts, "references": references}.items():
        if values is not None:
            check_texts(values, name, texts, strings=True)
    if human is not None:
        check_texts(human, "human", strings=True)
    if model is not None:
        check_model(model)
    if not function_of(tokens, 1):
        raise TypeError(f"tokens is {shown(tokens)}, but must be a function from a text to its tokens")
    if not any(text.strip() for text in texts):
        raise ValueError(f"all outputs of {system} are empty")
    measures = SystemMeasures(system, len(texts), sum(not text.strip() for text in texts))
    _measure_diversity(measures, [tokens(text) for text in texts])
    measures.add(
        "approximate loops",
        mean_of([float(find_approximate_loop(text) is not None) for text in texts]),
        f"texts whose last {WINDOW} words repeat by {THRESHOLD:.0%} or more, exactly or nearly",
    )
    if references is not None:
        for name, signed in signed_measures(texts, references).items():
            measures.add(NAMES[name], *signed)
        with measures.noting("length ratio"):
            words = [[text.split() for text in these] for these in (texts, references)]
            measures.add("length ratio", length_ratio(*words))
    if model is not None:
        with measures.noting("perplexity"):
            measures.add("perplexity", perplexity_of(*_total_nats(model, texts, prompts)))
        if prompts is not None and not model.is_encoder_decoder:
            with measures.noting("coherence"):
                _measure_coherence(measures, model, texts, prompts)
        if human is not None:
            with measures.noting("MAUVE"):
                nonempty = [text for text in texts if text.strip()]
                mauve = text_mauve(model, human, nonempty, length=mauve_length)
                measures.add("MAUVE", mauve.value, str(mauve))
                ends = (min(mauve.by_clustering), max(mauve.by_clustering))
                measures.spreads["MAUVE"] = Interval(mauve.value, *ends, 1.0)
    return measures


def paired_tests(
    first: SystemMeasures, second: SystemMeasures, *, samples: int = SAMPLES, seed: int = 0
) -> dict[str, PairedTest]:
    """Test the difference of each measure that both systems have in `summed`."""
    for system in (first, second):
        if not isinstance(system, SystemMeasures):
            raise TypeError(f"{shown(system)} is not a SystemMeasures: create one with measure_system")
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


def _measure_diversity(measures: SystemMeasures, texts: list[Sequence[Hashable]]) -> None:
    check_texts(texts, "the result of tokens for text")
    measures.add("length", mean_of([len(text) for text in texts]))
    measures.add("rep-4", mean_of([rep_n(text, 4) for text in texts]))
    measures.add("loops", mean_of([float(find_loop(text) is not None) for text in texts]))
    for n in (1, 2):
        level = f"corpus level: distinct {n}-grams of all texts / tokens; falls with more texts"
        measures.add(f"distinct-{n}", distinct_n(texts, n), level)
    with measures.noting("Zipf"):
        signature = f"slope over the {ZIPF_TOP:,} most frequent tokens"
        measures.add("Zipf", zipf_coefficient(texts), signature)
    with measures.noting("self-BLEU"):
        measures.add("self-BLEU", self_bleu(texts))


def _measure_coherence(
    measures: SystemMeasures, model: StepModel, texts: Sequence[str], prompts: Sequence[str]
) -> None:
    pairs = [(prompt, text) for prompt, text in zip(prompts, texts, strict=True) if text.strip()]
    result = coherence(model, [prompt for prompt, _ in pairs], [text for _, text in pairs])
    # Empty texts have no coherence, and paired tests need a value for every text.
    for name, values in {"fit": result.fits, "similarity": result.similarities}.items():
        if values:
            is_complete = len(values) == len(texts)
            measures.add(name, mean_of(values) if is_complete else sum(values) / len(values))


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
        for index, text_score in zip(nonempty, scored, strict=True):
            nats[index], counts[index] = -text_score.total, float(len(text_score.tokens))
        return nats, counts
    if model.tokenizer is None:
        raise ValueError("the model needs a tokenizer to read texts")
    scorable = [index for index, text in enumerate(texts) if len(model.tokenizer.encode(text)) > 1]
    if not scorable:
        raise ValueError("no output has at least two tokens")
    scored_nats = text_nats(model, forced(model, [texts[index] for index in scorable]))
    for index, total, count in zip(scorable, *scored_nats, strict=True):
        nats[index], counts[index] = total, count
    return nats, counts
