"""Any search of ours as the `custom_generate` of transformers: no remote code, their arguments, our texts.

    model.generate(**inputs, custom_generate=us.hf.beam(5, length_penalty=us.GNMT(0.6)), max_new_tokens=60)

What `generate` was told holds: its logits processors come before the search's own transforms, its stopping
criteria end texts, `max_new_tokens` and its end tokens are as it has them. Answers of an encoder–decoder
begin with `decoder_input_ids`. What the search would not read (`inputs_embeds`, images) is refused, and so is
`num_beams`, which is the search's own matter. `n`, `seed` and `stream_to` are arguments of ours: `generate`
allows `num_return_sequences` only where it samples or has beams, has no seeds for rows, and drops `streamer=`
for callables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.rng import seeds_of
from unspool.decode.run import Run
from unspool.integrations.huggingface.causal_model import as_token_ids, model_eos_ids
from unspool.integrations.huggingface.loading import from_huggingface
from unspool.integrations.huggingface.seq2seq_model import EncoderOutput, TransformersSeq2Seq
from unspool.interfaces import Decoder, StepModel

if TYPE_CHECKING:
    from unspool.interfaces import Step

# Texts as `generate` of transformers returns them: the prompt, what follows, padding on the right.


@dataclass
class GenerateOutput(ModelOutput):  # type: ignore[misc]  # transformers has no types
    """What `generate` returns with return_dict_in_generate=True."""

    sequences: Tensor | None = None
    """As `generate` has them: the prompt, what follows, padding on the right."""
    sequences_scores: Tensor | None = None
    """What a ranking search ranks by, else the sum of log p by the model."""
    logps: tuple[tuple[float, ...], ...] | None = None
    """log p of every new token by the model itself."""
    scores: tuple[tuple[float, ...], ...] | None = None
    """log p of every new token in what it was drawn from."""
    finish_reason: tuple[str, ...] | None = None
    """Why each text ended: "eos", "length" or "stop"."""


def make_generate_output(
    groups: Sequence[Sequence[Hypothesis]], given_NT: Tensor, n: int, config: Any
) -> Any:
    """n texts of every prompt, prompt after prompt."""
    for place, group in enumerate(groups):
        if len(group) < n:
            raise ValueError(
                f"{n} texts of every prompt were asked for, and the search found {len(group)} different ones "
                f"of prompt {place}: ask for fewer"
            )
    paths = [path for group in groups for path in group]
    sequences = _sequences(paths, given_NT, _pad_id(config))
    if not config.return_dict_in_generate:
        return sequences
    return GenerateOutput(
        sequences,
        torch.tensor([sum(path.logps) if path.total is None else path.total for path in paths]),
        tuple(path.logps for path in paths),
        tuple(path.scores for path in paths),
        tuple(str(path.finish_reason) for path in paths),
    )


def _pad_id(config: Any) -> int:
    if config.pad_token_id is not None:
        return int(config.pad_token_id)
    eos = config.eos_token_id
    first = eos[0] if isinstance(eos, list | tuple) else eos
    return 0 if first is None else int(first)


def _sequences(paths: Sequence[Hypothesis], given_NT: Tensor, padding: int) -> Tensor:
    longest = max(len(path.tokens) for path in paths)
    rows = [[*path.tokens, *[padding] * (longest - len(path.tokens))] for path in paths]
    given = given_NT[[path.request for path in paths]]
    return torch.cat((given, torch.tensor(rows, device=given_NT.device)), dim=1)


# A search whose tokens go to a streamer of transformers as they become certain.


@dataclass(frozen=True, eq=False)
class StreamedDecoder:
    """The same search; one that may change its mind (beam) shows everything at its end."""

    decoder: Decoder
    streamer: Any
    given_NT: Tensor
    """The prompt as `generate` has it: a streamer is given that first."""

    @property
    def streams(self) -> bool:
        """As the search does."""
        return self.decoder.streams

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        """The frontiers of the search."""
        if (len(job.prompts), job.n) != (1, 1):
            raise ValueError("a streamer shows one text: give one prompt, and n=1")
        self.streamer.put(self.given_NT.cpu())
        shown = 0
        for frontier in self.decoder(model, job):
            for path in (*(frontier.live if self.streams else ()), *frontier.ended):
                for token in path.tokens[shown:]:
                    self.streamer.put(torch.tensor([token]))
                shown = len(path.tokens)
            yield frontier
        self.streamer.end()


KNOWN_MODEL_KWARGS = frozenset(
    {
        *("attention_mask", "decoder_attention_mask", "encoder_outputs", "past_key_values"),
        *("position_ids", "cache_position", "use_cache", "logits_to_keep"),
    }
)
"""What `generate` hands over and the search reads, or has a counterpart of."""
HANDLED_CRITERIA = ("MaxLengthCriteria", "EosTokenCriteria")
"""Criteria that the search has counterparts of."""


@dataclass(frozen=True)
class CustomGenerate:
    """A search in the place of their decoding loop."""

    decoder: Decoder
    tokenizer: Any = None
    """For searches and rules that look at characters."""

    @torch.inference_mode()
    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        *,
        inputs_tensor: Tensor | None = None,
        n: int = 1,
        seed: int | Sequence[int] | None = None,
        stream_to: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """What `generate` calls with everything prepared."""
        _check(generation_config, inputs_tensor, model_kwargs)
        # They repeat each prompt for each of its answers; we do so where these part.
        each = generation_config.num_return_sequences or 1
        n = n if each == 1 else each
        given_NT = input_ids[::each]
        speaker = from_huggingface(model, self.tokenizer)
        mask = model_kwargs.get("attention_mask")
        mask = None if mask is None else mask[::each]
        prompts: list[tuple[int, ...]]
        if isinstance(speaker, TransformersSeq2Seq):
            assert inputs_tensor is not None
            prompts = [_Source.at(place, ids) for place, ids in enumerate(unpadded(inputs_tensor, mask))]
            memory = model_kwargs["encoder_outputs"].last_hidden_state[::each]
            encoded = EncoderOutput(memory, _bool_mask(inputs_tensor, mask))
            speaker = _PreEncodedSeq2Seq(model, speaker.tokenizer, encoded, given_NT)
        else:
            prompts = unpadded(given_NT, mask)
        job = _job(speaker, prompts, given_NT, generation_config, seed, n)
        job = replace(
            job,
            first=(_LogitsProcessors(logits_processor, given_NT),) if logits_processor else (),
            stop_condition=_stop_condition(stopping_criteria, given_NT),
        )
        decoder = self.decoder if stream_to is None else StreamedDecoder(self.decoder, stream_to, given_NT)
        groups: list[list[Hypothesis]] = [[] for _ in prompts]
        for path in Run.from_job(speaker, job, decoder).finished():
            groups[path.request].append(path)
        return make_generate_output(groups, given_NT, n, generation_config)


class _Source(tuple[int, ...]):
    """The tokens of a source, and its place in the batch: equal sources may have different prefixes."""

    place: int

    @classmethod
    def at(cls, place: int, tokens: tuple[int, ...]) -> _Source:
        source = cls(tokens)
        source.place = place
        return source


class _PreEncodedSeq2Seq(TransformersSeq2Seq):
    """An encoder–decoder whose sources `generate` has encoded, and whose answers begin as it says."""

    def __init__(self, model: Any, text: Any, encoded: EncoderOutput, prefix_NT: Tensor) -> None:
        super().__init__(model, text)
        self._encoded, self._prefix_NT = encoded, prefix_NT

    def encode(self, prompts: Sequence[Sequence[int]]) -> EncoderOutput:
        """What was said of these prompts."""
        return self._encoded.select(self._places(prompts))

    def target_prefix(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """The start token and `decoder_input_ids`."""
        return self._prefix_NT.index_select(0, self._places(prompts))

    def _places(self, prompts: Sequence[Any]) -> Tensor:
        return torch.tensor([prompt.place for prompt in prompts], device=self.device)


@dataclass(frozen=True, eq=False)
class _LogitsProcessors:
    """Their logits processors as a transform: they are given logits, and rows as `generate` has them."""

    processors: Any
    given_NT: Tensor
    on_logits = True

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
        logits_NV = scores_NV if step.log_norm_N is None else scores_NV + step.log_norm_N[:, None]
        rows = torch.stack([_full_sequence(self.given_NT, path) for path in history])
        processed: Tensor = self.processors(rows, logits_NV.clone())
        return processed


def _full_sequence(given_NT: Tensor, path: Hypothesis) -> Tensor:
    return torch.cat((given_NT[path.request], given_NT.new_tensor(path.tokens)))


def _stop_condition(criteria: Any, given_NT: Tensor) -> Any:
    """Their stopping criteria, but for those that the search has itself; None where there are no others."""
    others = [it for it in criteria if type(it).__name__ not in HANDLED_CRITERIA]
    if not others:
        return None

    def judge(path: Hypothesis) -> Hypothesis:
        row_1T = _full_sequence(given_NT, path)[None]
        return replace(path, finish_reason="stop") if any(bool(it(row_1T, None)) for it in others) else path

    return judge


def _check(config: Any, inputs_tensor: Tensor | None, model_kwargs: Mapping[str, Any]) -> None:
    foreign = [
        name
        for name, given in model_kwargs.items()
        if name not in KNOWN_MODEL_KWARGS and _holds_tensor(given)
    ]
    if foreign:
        raise ValueError(
            f"{foreign[0]} is not read by a search of unspool, which reads token ids: give input_ids alone"
        )
    if inputs_tensor is not None and inputs_tensor.is_floating_point():
        raise ValueError("a search of unspool reads sources of token ids: give input_ids")
    decoder_mask = model_kwargs.get("decoder_attention_mask")
    if decoder_mask is not None and not bool(decoder_mask.all()):
        raise ValueError(
            "decoder_attention_mask hides tokens of decoder_input_ids: give prefixes of equal length, or one "
            "prompt at a time"
        )
    if (config.num_beams or 1) > 1:
        raise ValueError(
            f"num_beams={config.num_beams} is for the search of transformers, and this one has its own "
            "width: leave num_beams out, and say us.hf.beam(4)"
        )
    cache = model_kwargs.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        raise ValueError(
            "past_key_values hold tokens already, which this search would not read: leave them out"
        )


def _job(
    model: Any, prompts: Sequence[tuple[int, ...]], given_NT: Tensor, config: Any, seed: Any, n: int
) -> Job:
    ends = as_token_ids(config.eos_token_id) or model_eos_ids(model.model)
    if seed is None:  # transformers.set_seed and torch.manual_seed decide
        seed = int(torch.randint(2**31, (1,), device=given_NT.device))
    prefixes = tuple(tuple(row) for row in given_NT[:, 1:].tolist()) if model.is_encoder_decoder else ()
    after = [row[-1] if row else None for row in (prefixes if model.is_encoder_decoder else prompts)]
    watches = (
        () if model.tokenizer is None else tuple(model.tokenizer.detokenizer((), token) for token in after)
    )
    limit = config.max_length - given_NT.shape[1]
    return Job(
        tuple(prompts),
        (limit,) * len(prompts),
        seeds_of(seed, len(prompts)),
        n,
        eos=ends,
        detokenizers=watches,
        is_encoder_decoder=model.is_encoder_decoder,
        target_prefixes=prefixes,
    )


def _holds_tensor(value: Any) -> bool:
    """Whether an argument is one that changes a text: a tensor, or several."""
    return isinstance(value, Tensor) or (
        isinstance(value, list | tuple | dict) and any(isinstance(it, Tensor) for it in value)
    )


def _bool_mask(tokens_NT: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones_like(tokens_NT, dtype=torch.bool) if mask is None else mask.bool()


def unpadded(tokens_NT: Tensor, mask: Tensor | None) -> list[tuple[int, ...]]:
    """The tokens of every row that the mask shows."""
    seen = _bool_mask(tokens_NT, mask)
    return [tuple(row[kept].tolist()) for row, kept in zip(tokens_NT, seen, strict=True)]
