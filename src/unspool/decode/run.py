"""Run: validate a generation request, decode it, and yield its hypotheses.

`generate`, `stream`, `Chat`, the command line, the server and the adapters all decode through `Run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypedDict, Unpack, get_type_hints

from unspool import config
from unspool.arguments import as_int, ids, items, shown
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.lockstep import check_model
from unspool.decode.loops import OnLoop, stop_on_loops
from unspool.decode.output import Output, Piece, output_of, pieces_of
from unspool.decode.prompts import Prompt, Prompts, as_batch, check_ids, ids_of, tokens_left
from unspool.decode.rng import seeds_of
from unspool.decode.search import Greedy, Sample
from unspool.decode.spec import as_decoder
from unspool.decode.transforms import MinP, RepetitionPenalty, Temperature, TopK, TopP
from unspool.errors import check_surrogates, is_out_of_memory
from unspool.interfaces import Decoder, StepModel, Transform

SAMPLERS: dict[str, type] = {
    "repetition_penalty": RepetitionPenalty,
    "temperature": Temperature,
    "top_k": TopK,
    "top_p": TopP,
    "min_p": MinP,
}
"""Keywords that build a Sample, in the order in which Hugging Face transformers applies them."""

HUGGING_FACE_OPTIONS = {
    "do_sample": "give a decoder, us.Greedy() or us.Sample()",
    "num_beams": "give a decoder such as us.Beam(4)",
    "num_return_sequences": "give n",
    "max_length": "give max_new_tokens, which does not count the prompt",
    "stop_strings": "give stop",
}
"""Keyword of its `generate` → what to write instead."""


class GenerationOptions(TypedDict, total=False):
    """Keywords of `generate`, `stream` and `agenerate`, besides `n`."""

    max_new_tokens: int
    seed: int | Sequence[int] | None
    stop: str | Sequence[str] | None
    stop_ids: int | Sequence[int]
    on_loop: OnLoop
    alternatives: int
    batch_size: int
    repetition_penalty: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float


class Run:
    """Prompt generation request: `job` holds its checked arguments; iterating decodes it.

    Everything is checked before the model is called. The options are documented in `generate`.
    """

    def __init__(
        self,
        model: StepModel,
        prompts: Prompt | Prompts,
        decoder: Decoder | str | None = None,
        *,
        n: int = 1,
        **options: Unpack[GenerationOptions],
    ) -> None:
        check_model(model)
        unknown = next((name for name in options if name not in OPTIONS), None)
        if unknown in HUGGING_FACE_OPTIONS:
            raise TypeError(f"{unknown!r} is an option of transformers: {HUGGING_FACE_OPTIONS[unknown]}")
        if unknown is not None:
            raise TypeError(config.unknown(unknown, OPTIONS, "option of generate"))
        self.model = model
        self.decoder = _decoder(decoder, options)
        batch, self.is_single = as_batch(prompts)
        """`is_single` is whether there is one prompt that is not in a list."""
        self.job = _job(model, batch, n, options)

    @classmethod
    def from_job(cls, model: StepModel, job: Job, decoder: Decoder) -> Run:
        """Run a job that another library's arguments describe."""
        run = cls.__new__(cls)
        run.model, run.job, run.decoder, run.is_single = model, job, decoder, False
        return run

    def with_job(self, **changes: Any) -> Run:
        return Run.from_job(self.model, replace(self.job, **changes), self.decoder)

    def steps(self) -> Iterator[SearchStep]:
        """Decode step by step. The decoder checks the job before the first step is asked for."""
        with self._memory_errors():
            steps = self.decoder(self.model, self.job)
        return self._guard(steps)

    def finished(self) -> Iterator[Hypothesis]:
        """Yield every finished hypothesis by prompt and sample, each as soon as all before it have ended."""
        waiting: list[dict[int, Hypothesis]] = [{} for _ in self.job.prompts]
        request = sample = 0
        for step in self.steps():
            for hypothesis in step.ended:
                waiting[hypothesis.request][hypothesis.sample] = hypothesis
            while request < len(waiting) and sample in waiting[request]:
                yield waiting[request].pop(sample)
                sample += 1
                # A decoder that ranks returns the texts of a prompt together, and may have fewer than n.
                if sample == self.job.n or not (self.decoder.streams or waiting[request]):
                    request, sample = request + 1, 0
        for group in waiting[request:]:
            yield from (group[sample] for sample in sorted(group))

    def output(self, hypothesis: Hypothesis) -> Output:
        return output_of(hypothesis, self.job, self.model.tokenizer)

    def outputs(self) -> list[list[Output]]:
        groups: list[list[Output]] = [[] for _ in self.job.prompts]
        for hypothesis in self.finished():
            groups[hypothesis.request].append(self.output(hypothesis))
        return groups

    def pieces(self) -> Iterator[Piece]:
        """Stream the text of every hypothesis as it becomes final."""
        return pieces_of(self.steps(), self.decoder.streams, self.model.tokenizer)

    def _guard(self, steps: Iterator[SearchStep]) -> Iterator[SearchStep]:
        with self._memory_errors():
            yield from steps

    @contextmanager
    def _memory_errors(self) -> Iterator[None]:
        """Turn out-of-memory errors into a message that names the remedy."""
        try:
            yield
        except (MemoryError, OSError, RuntimeError) as error:
            has_message = type(error) is MemoryError and error.args  # numpy raises a subclass
            if has_message or not is_out_of_memory(error):
                raise
            rows = min(self.job.rows, len(self.job.prompts) * self.job.n)
            raise MemoryError(
                f"out of memory while decoding {rows} sequences with {self.decoder!r:.80}: "
                "reduce batch_size, beam width or max_new_tokens"
            ) from error


def _decoder(decoder: Any, options: GenerationOptions) -> Decoder:
    """Return the decoder, or build a Sample from keywords such as temperature=0.8, top_p=0.9."""
    given: dict[str, Any] = {name: options.get(name) for name in SAMPLERS if options.get(name) is not None}
    if not given:
        return as_decoder(decoder)
    if decoder is not None:
        raise TypeError(f"give a decoder or {', '.join(given)}, not both")
    temperature = given.get("temperature")
    is_greedy = isinstance(temperature, int | float) and temperature == 0 and temperature is not False
    if is_greedy:
        del given["temperature"]
    transforms: list[Transform] = [SAMPLERS[name](value) for name, value in given.items()]
    return Greedy(*transforms) if is_greedy else Sample(*transforms)


def _job(model: StepModel, prompts: Sequence[Any], n: int, options: GenerationOptions) -> Job:
    max_new_tokens = options.get("max_new_tokens", config.MAX_NEW_TOKENS)
    max_new_tokens = as_int("max_new_tokens", max_new_tokens, at_least=1)
    encoded = tuple(ids_of(model, prompt, index) for index, prompt in enumerate(prompts))
    stop_ids = frozenset(ids("stop_ids", options.get("stop_ids", ()), empty=True))
    check_ids(model.vocab_size, sorted(stop_ids), "stop_ids")
    stops = _stop_strings(model, options.get("stop"))
    is_encoder_decoder, tokenizer = model.is_encoder_decoder, model.tokenizer
    after = [None if is_encoder_decoder else tokens[-1] for tokens in encoded]
    return Job(
        prompts=encoded,
        limits=tuple(_limit(model, tokens, max_new_tokens, index) for index, tokens in enumerate(encoded)),
        seeds=seeds_of(options.get("seed"), len(prompts)),
        n=as_int("n", n, at_least=1, at_most=config.MAX_SAMPLES),
        eos=model.eos_ids,
        detokenizers=tuple(tokenizer.detokenizer(stops, after=last) for last in after) if tokenizer else (),
        stop_condition=stop_on_loops(options.get("on_loop", "ignore")),
        alternatives=as_int(
            "alternatives", options.get("alternatives", 0), at_least=0, at_most=model.vocab_size
        ),
        stop_ids=stop_ids,
        is_encoder_decoder=is_encoder_decoder,
        rows=as_int("batch_size", options.get("batch_size", config.MAX_BATCH_ROWS), at_least=1),
    )


def _stop_strings(model: StepModel, stop: str | Sequence[str] | None) -> list[str]:
    given = () if stop is None else stop
    stops = [given] if isinstance(given, str) else items("stop", given, "a string or a list of strings")
    for string in stops:
        if not isinstance(string, str):
            raise TypeError(f"stop holds {shown(string)}, but must hold strings: give token ids as stop_ids")
        if not string:
            raise ValueError("a stop string is empty and would stop every text at once: leave it out")
        check_surrogates(string, "the stop string")
    if stops and model.tokenizer is None:
        raise ValueError(
            "stop strings need a tokenizer: load the model with its tokenizer.json, or give stop_ids"
        )
    return list(stops)


def _limit(model: StepModel, prompt: tuple[int, ...], max_new_tokens: int, index: int) -> int:
    """New tokens of one prompt: max_new_tokens, or fewer if the context ends before."""
    left = tokens_left(model, prompt)
    if left is None:
        return max_new_tokens
    if left < 1 and model.context is not None and len(prompt) < model.context:
        raise ValueError(
            f"the negative prompt of prompt {index} fills the context of {model.context}: shorten it"
        )
    if left < 1:
        raise ValueError(
            f"prompt {index} has {len(prompt)} tokens but the context is {model.context}: shorten the prompt"
        )
    return min(max_new_tokens, left)


OPTIONS = frozenset(get_type_hints(GenerationOptions))
