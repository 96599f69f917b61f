"""Use any decoder as `custom_generate` of transformers, without remote code.

    model.generate(**inputs, custom_generate=us.hf.beam(5, length_penalty=us.GNMT(0.6)), max_new_tokens=60)

Arguments of `generate` keep their meaning: logits processors run before the decoder's transforms, stopping
criteria end texts, and `max_new_tokens` and EOS apply. `decoder_input_ids` is the prefix of an
encoder–decoder's output. Inputs that the decoder would ignore (`inputs_embeds`, images) are rejected, and so
is `num_beams`. `n`, `seed` and `stream_to` are additional arguments, because `generate` allows
`num_return_sequences` only for sampling and beams, has no per-row seeds, and drops `streamer=` for callables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.rng import seeds_of
from unspool.decode.run import Run
from unspool.integrations.huggingface.causal_model import model_eos_ids
from unspool.integrations.huggingface.loading import from_huggingface
from unspool.integrations.huggingface.seq2seq_model import EncoderOutput, TransformersSeq2Seq
from unspool.interfaces import Decoder, Step, StepModel
from unspool.tokenization.huggingface_tokenizer import as_token_ids


@dataclass
class GenerateOutput(ModelOutput):  # type: ignore[misc]  # transformers has no types
    """The output of `generate` with return_dict_in_generate=True."""

    sequences: Tensor | None = None
    """Prompt and new tokens, right-padded."""
    sequences_scores: Tensor | None = None
    """The ranking score of a search, or else the sum of the model's log p."""
    logps: tuple[tuple[float, ...], ...] | None = None
    """The model's log p of every new token."""
    scores: tuple[tuple[float, ...], ...] | None = None
    """log p of every new token after transforms."""
    finish_reason: tuple[str, ...] | None = None
    """"eos", "length" or "stop"."""


def make_generate_output(
    groups: Sequence[Sequence[Hypothesis]], given_NT: Tensor, n: int, config: Any
) -> Any:
    """Collect n texts per prompt in the format of `generate`."""
    for at, group in enumerate(groups):
        if len(group) < n:
            raise ValueError(
                f"the decoder found only {len(group)} different texts for prompt {at}, not {n}: reduce n"
            )
    hypotheses = [hypothesis for group in groups for hypothesis in group]
    eos = config.eos_token_id if isinstance(config.eos_token_id, list | tuple) else [config.eos_token_id]
    padding = next((token for token in (config.pad_token_id, *eos) if token is not None), 0)
    longest = max(len(hypothesis.tokens) for hypothesis in hypotheses)
    rows = [
        [*hypothesis.tokens, *[padding] * (longest - len(hypothesis.tokens))] for hypothesis in hypotheses
    ]
    given = given_NT[[hypothesis.request for hypothesis in hypotheses]]
    sequences = torch.cat((given, torch.tensor(rows, device=given_NT.device)), dim=1)
    if not config.return_dict_in_generate:
        return sequences
    return GenerateOutput(
        sequences,
        torch.tensor(
            [
                sum(hypothesis.logps) if hypothesis.total is None else hypothesis.total
                for hypothesis in hypotheses
            ]
        ),
        tuple(hypothesis.logps for hypothesis in hypotheses),
        tuple(hypothesis.scores for hypothesis in hypotheses),
        tuple(str(hypothesis.finish_reason) for hypothesis in hypotheses),
    )


@dataclass(frozen=True, eq=False)
class StreamedDecoder:
    """A decoder that sends its tokens to a streamer; beam searches send them at the end."""

    decoder: Decoder
    streamer: Any
    given_NT: Tensor
    """The prompt, which is sent first."""

    @property
    def streams(self) -> bool:
        """True if tokens are final as soon as they are drawn."""
        return self.decoder.streams

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        if (len(job.prompts), job.n) != (1, 1):
            raise ValueError("streaming supports one text: use one prompt and n=1")
        self.streamer.put(self.given_NT.cpu())
        sent = 0
        for step in self.decoder(model, job):
            for hypothesis in (*(step.live if self.streams else ()), *step.ended):
                for token in hypothesis.tokens[sent:]:
                    self.streamer.put(torch.tensor([token]))
                sent = len(hypothesis.tokens)
            yield step
        self.streamer.end()


KNOWN_MODEL_KWARGS = frozenset(
    {
        *("attention_mask", "decoder_attention_mask", "encoder_outputs", "past_key_values"),
        *("position_ids", "cache_position", "use_cache", "logits_to_keep"),
    }
)
"""Arguments of `generate` that are used, or do not affect the text."""
HANDLED_CRITERIA = ("MaxLengthCriteria", "EosTokenCriteria")
"""Stopping criteria that the decoder implements itself."""


@dataclass(frozen=True)
class CustomGenerate:
    """A decoder that replaces the decoding loop of `generate`."""

    decoder: Decoder
    tokenizer: Any = None
    """For decoders and transforms that use text."""

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
        _check(generation_config, inputs_tensor, model_kwargs)
        # `generate` repeats each prompt num_return_sequences times; undo that.
        each = generation_config.num_return_sequences or 1
        n = n if each == 1 else each
        given_NT = input_ids[::each]
        step_model = from_huggingface(model, self.tokenizer)
        mask = model_kwargs.get("attention_mask")
        mask = None if mask is None else mask[::each]
        prompts: list[tuple[int, ...]]
        if isinstance(step_model, TransformersSeq2Seq):
            assert inputs_tensor is not None
            prompts = [_Source.at(row, ids) for row, ids in enumerate(unpadded(inputs_tensor, mask))]
            memory = model_kwargs["encoder_outputs"].last_hidden_state[::each]
            encoded = EncoderOutput(memory, _bool_mask(inputs_tensor, mask))
            step_model = _PreEncodedSeq2Seq(model, step_model.tokenizer, encoded, given_NT)
        else:
            prompts = unpadded(given_NT, mask)
        job = _job(step_model, prompts, given_NT, generation_config, seed, n)
        job = replace(
            job,
            first=(_LogitsProcessors(logits_processor, given_NT),) if logits_processor else (),
            stop_condition=_stop_condition(stopping_criteria, given_NT),
        )
        decoder = self.decoder if stream_to is None else StreamedDecoder(self.decoder, stream_to, given_NT)
        groups: list[list[Hypothesis]] = [[] for _ in prompts]
        for hypothesis in Run.from_job(step_model, job, decoder).finished():
            groups[hypothesis.request].append(hypothesis)
        return make_generate_output(groups, given_NT, n, generation_config)


class _Source(tuple[int, ...]):
    """The tokens of a source and its row in the batch: equal sources may have different target prefixes."""

    row: int

    @classmethod
    def at(cls, row: int, tokens: tuple[int, ...]) -> _Source:
        source = cls(tokens)
        source.row = row
        return source


class _PreEncodedSeq2Seq(TransformersSeq2Seq):
    """An encoder–decoder with the encoder output and target prefixes of `generate`."""

    def __init__(self, model: Any, tokenizer: Any, encoded: EncoderOutput, prefix_NT: Tensor) -> None:
        super().__init__(model, tokenizer)
        self._encoded, self._prefix_NT = encoded, prefix_NT

    def encode(self, prompts: Sequence[Sequence[int]]) -> EncoderOutput:
        """The encoder output of these prompts."""
        return self._encoded.select(self._rows(prompts))

    def target_prefix(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """The start token and `decoder_input_ids`."""
        return self._prefix_NT.index_select(0, self._rows(prompts))

    def _rows(self, prompts: Sequence[Any]) -> Tensor:
        return torch.tensor([prompt.row for prompt in prompts], device=self.device)


@dataclass(frozen=True, eq=False)
class _LogitsProcessors:
    """The logits processors of `generate` as a transform."""

    processors: Any
    given_NT: Tensor
    on_logits = True

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
        logits_NV = scores_NV if step.log_norm_N is None else scores_NV + step.log_norm_N[:, None]
        rows = torch.stack([_full_sequence(self.given_NT, hypothesis) for hypothesis in history])
        return self.processors(rows, logits_NV.clone())


def _full_sequence(given_NT: Tensor, hypothesis: Hypothesis) -> Tensor:
    return torch.cat((given_NT[hypothesis.request], given_NT.new_tensor(hypothesis.tokens)))


def _stop_condition(criteria: Any, given_NT: Tensor) -> Any:
    """The custom stopping criteria of `generate`, or None."""
    others = [criterion for criterion in criteria if type(criterion).__name__ not in HANDLED_CRITERIA]
    if not others:
        return None

    def check(hypothesis: Hypothesis) -> Hypothesis:
        row_1T = _full_sequence(given_NT, hypothesis)[None]
        return (
            replace(hypothesis, finish_reason="stop")
            if any(bool(criterion(row_1T, None)) for criterion in others)
            else hypothesis
        )

    return check


def _check(config: Any, inputs_tensor: Tensor | None, model_kwargs: Mapping[str, Any]) -> None:
    for name, value in model_kwargs.items():
        if name not in KNOWN_MODEL_KWARGS and _holds_tensor(value):
            raise ValueError(f"{name} is not supported by decoders of unspool: give input_ids alone")
    if inputs_tensor is not None and inputs_tensor.is_floating_point():
        raise ValueError("decoders of unspool need sources as token ids: give input_ids")
    decoder_mask = model_kwargs.get("decoder_attention_mask")
    if decoder_mask is not None and not bool(decoder_mask.all()):
        raise ValueError(
            "decoder_attention_mask must not mask decoder_input_ids: give prefixes of equal length, or one "
            "prompt at a time"
        )
    if (config.num_beams or 1) > 1:
        raise ValueError(
            f"num_beams={config.num_beams} conflicts with custom_generate: leave it out and use us.hf.beam(4)"
        )
    cache = model_kwargs.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        raise ValueError(
            "past_key_values must be empty: decoders of unspool read the whole prompt; leave them out"
        )


def _job(
    model: Any, prompts: Sequence[tuple[int, ...]], given_NT: Tensor, config: Any, seed: Any, n: int
) -> Job:
    eos_ids = as_token_ids(config.eos_token_id) or model_eos_ids(model.model)
    if seed is None:  # reproducible with transformers.set_seed and torch.manual_seed
        seed = int(torch.randint(2**31, (1,), device=given_NT.device))
    prefixes = tuple(tuple(row) for row in given_NT[:, 1:].tolist()) if model.is_encoder_decoder else ()
    after = [row[-1] if row else None for row in (prefixes if model.is_encoder_decoder else prompts)]
    detokenizers = (
        () if model.tokenizer is None else tuple(model.tokenizer.detokenizer((), token) for token in after)
    )
    limit = config.max_length - given_NT.shape[1]
    return Job(
        tuple(prompts),
        (limit,) * len(prompts),
        seeds_of(seed, len(prompts)),
        n,
        eos=eos_ids,
        detokenizers=detokenizers,
        is_encoder_decoder=model.is_encoder_decoder,
        target_prefixes=prefixes,
    )


def _holds_tensor(value: Any) -> bool:
    """True for a tensor and for a list or dict of tensors."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, Tensor) or any(isinstance(each, Tensor) for each in values)


def _bool_mask(tokens_NT: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones_like(tokens_NT, dtype=torch.bool) if mask is None else mask.bool()


def unpadded(tokens_NT: Tensor, mask: Tensor | None) -> list[tuple[int, ...]]:
    """The tokens of every row without padding."""
    mask_NT = _bool_mask(tokens_NT, mask)
    return [tuple(row[mask_T].tolist()) for row, mask_T in zip(tokens_NT, mask_NT, strict=True)]
