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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unspool.adapters.huggingface.answering_model import AnsweringModel, Encoded
from unspool.adapters.huggingface.generate_output import decoded
from unspool.adapters.huggingface.special_tokens import ending_ids, ids
from unspool.adapters.huggingface.streamed_search import Streamed
from unspool.adapters.huggingface.wrapping import from_huggingface
from unspool.decode.generate import finished
from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.decode.rng import seeds_of

if TYPE_CHECKING:
    from unspool.protocols import Search, Step

KNOWN = frozenset(
    {
        *("attention_mask", "decoder_attention_mask", "encoder_outputs", "past_key_values"),
        *("position_ids", "cache_position", "use_cache", "logits_to_keep"),
    }
)
"""What `generate` hands over and the search reads, or has a counterpart of."""
OWN_ENDS = ("MaxLengthCriteria", "EosTokenCriteria")
"""Criteria that the search has counterparts of."""


@dataclass(frozen=True)
class CustomGenerate:
    """A search in the place of their decoding loop."""

    search: Search
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
        if isinstance(speaker, AnsweringModel):
            assert inputs_tensor is not None
            prompts = [_Source.at(place, ids) for place, ids in enumerate(unpadded(inputs_tensor, mask))]
            memory = model_kwargs["encoder_outputs"].last_hidden_state[::each]
            encoded = Encoded(memory, _seen(inputs_tensor, mask))
            speaker = _Encoded(model, speaker.text, encoded, given_NT)
        else:
            prompts = unpadded(given_NT, mask)
        job = _job(speaker, prompts, given_NT, generation_config, seed, n)
        job = replace(
            job,
            first=(_TheirRules(logits_processor, given_NT),) if logits_processor else (),
            judge=_judge(stopping_criteria, given_NT),
        )
        search = self.search if stream_to is None else Streamed(self.search, stream_to, given_NT)
        groups: list[list[Path]] = [[] for _ in prompts]
        for path in finished(speaker, job, search):
            groups[path.request].append(path)
        return decoded(groups, given_NT, n, generation_config)


class _Source(tuple[int, ...]):
    """The tokens of a source, and its place in the batch: equal sources may have different prefixes."""

    place: int

    @classmethod
    def at(cls, place: int, tokens: tuple[int, ...]) -> _Source:
        source = cls(tokens)
        source.place = place
        return source


class _Encoded(AnsweringModel):
    """An encoder–decoder whose sources `generate` has encoded, and whose answers begin as it says."""

    def __init__(self, model: Any, text: Any, encoded: Encoded, prefix_NT: Tensor) -> None:
        super().__init__(model, text)
        self._encoded, self._prefix_NT = encoded, prefix_NT

    def encode(self, prompts: Sequence[Sequence[int]]) -> Encoded:
        """What was said of these prompts."""
        return self._encoded.select(self._places(prompts))

    def target_prefix(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """The start token and `decoder_input_ids`."""
        return self._prefix_NT.index_select(0, self._places(prompts))

    def _places(self, prompts: Sequence[Any]) -> Tensor:
        return torch.tensor([prompt.place for prompt in prompts], device=self.device)


@dataclass(frozen=True, eq=False)
class _TheirRules:
    """Their logits processors as a transform: they are given logits, and rows as `generate` has them."""

    processors: Any
    given_NT: Tensor
    on_logits = True

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:
        logits_NV = scores_NV if step.log_norm_N is None else scores_NV + step.log_norm_N[:, None]
        rows = torch.stack([_row(self.given_NT, path) for path in history])
        processed: Tensor = self.processors(rows, logits_NV.clone())
        return processed


def _row(given_NT: Tensor, path: Path) -> Tensor:
    return torch.cat((given_NT[path.request], given_NT.new_tensor(path.tokens)))


def _judge(criteria: Any, given_NT: Tensor) -> Any:
    """Their stopping criteria, but for those that the search has itself; None where there are no others."""
    others = [it for it in criteria if type(it).__name__ not in OWN_ENDS]
    if not others:
        return None

    def judge(path: Path) -> Path:
        row_1T = _row(given_NT, path)[None]
        return replace(path, finish="stop") if any(bool(it(row_1T, None)) for it in others) else path

    return judge


def _check(config: Any, inputs_tensor: Tensor | None, model_kwargs: Mapping[str, Any]) -> None:
    foreign = [name for name, given in model_kwargs.items() if name not in KNOWN and _is_given(given)]
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
    ends = ids(config.eos_token_id) or ending_ids(model.model)
    if seed is None:  # transformers.set_seed and torch.manual_seed decide
        seed = int(torch.randint(2**31, (1,), device=given_NT.device))
    prefixes = tuple(tuple(row) for row in given_NT[:, 1:].tolist()) if model.answers else ()
    after = [row[-1] if row else None for row in (prefixes if model.answers else prompts)]
    watches = () if model.text is None else tuple(model.text.watch((), token) for token in after)
    limit = config.max_length - given_NT.shape[1]
    return Job(
        tuple(prompts),
        (limit,) * len(prompts),
        seeds_of(seed, len(prompts)),
        n,
        eos=ends,
        watches=watches,
        answers=model.answers,
        target_prefixes=prefixes,
    )


def _is_given(value: Any) -> bool:
    """Whether an argument is one that changes a text: a tensor, or several."""
    return isinstance(value, Tensor) or (
        isinstance(value, list | tuple | dict) and any(isinstance(it, Tensor) for it in value)
    )


def _seen(tokens_NT: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones_like(tokens_NT, dtype=torch.bool) if mask is None else mask.bool()


def unpadded(tokens_NT: Tensor, mask: Tensor | None) -> list[tuple[int, ...]]:
    """The tokens of every row that the mask shows."""
    seen = _seen(tokens_NT, mask)
    return [tuple(row[kept].tolist()) for row, kept in zip(tokens_NT, seen, strict=True)]
