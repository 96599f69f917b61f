"""Transformers models as StepModels: the shared base, and causal language models of any family.

    log p = log_softmax(z),   log_norm = logsumexp(z),   z the logits of `forward`

A forward hook on the head captures the hidden states, so that family-specific steps before the head (a scale,
a norm) need not be known.

Prompts are left-padded to one batch. The KV cache grows by one column per step and is reordered for beams.
Attention-only models get a cache that keeps every column, even outside a sliding window (the mask hides it),
so that tokens can be rewound. Recurrent and hybrid models create their own cache and cannot be rewound.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, nn

from unspool.heads.softmax import log_softmax, step_from_logits
from unspool.integrations.loading import TRANSFORMERS
from unspool.interfaces import Abilities, Step, TokenizerLike
from unspool.models.sequence_model import inference_method
from unspool.models.sources import BoundaryTokens
from unspool.models.torch_batching import TorchBatching
from unspool.tokenization.huggingface_tokenizer import as_token_ids


def boundary_tokens(model: Any, tokenizer: TokenizerLike | None) -> BoundaryTokens:
    """The decoder's start token (decoder_start_token_id, else BOS) and EOS tokens of an encoder–decoder."""
    eos = model_eos_ids(model) or (tokenizer.eos_ids if tokenizer is not None else frozenset())
    bos = generation_setting(model, "decoder_start_token_id")
    bos = generation_setting(model, "bos_token_id") if bos is None else bos
    if bos is None or not eos:
        raise ValueError(
            f"{type(model).__name__} has no decoder_start_token_id or no eos_token_id: set them in its "
            "generation_config"
        )
    return BoundaryTokens(bos, eos, source_bos=True)


def generation_setting(model: Any, name: str) -> Any:
    """A setting of generation_config, or else of config; None if both lack it."""
    for settings in (model.generation_config, model.config):
        value = getattr(settings, name, None)
        if value is not None:
            return value
    return None


def model_eos_ids(model: Any) -> frozenset[int]:
    """The EOS ids of a model."""
    return as_token_ids(generation_setting(model, "eos_token_id"))


ENGINE = "transformers"


class TransformersModel(nn.Module, Abilities):
    """Base of wrapped transformers models; subclasses read the prompts."""

    def __init__(self, model: Any, tokenizer: TokenizerLike | None) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def head(self) -> Any:
        """The output layer; None if the model exposes none, or its embedding instead (FSMT)."""
        head = self.model.get_output_embeddings()
        return None if isinstance(head, nn.Embedding) else head

    @property
    def engine(self) -> str:
        return ENGINE

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @cached_property
    def vocab_size(self) -> int:
        head = self.model.get_output_embeddings()
        return self._text_config.vocab_size if head is None else head.weight.shape[0]

    @property
    def eos_ids(self) -> frozenset[int]:
        """EOS ids of the tokenizer, or else of generation_config or config."""
        if self.tokenizer is not None:
            return self.tokenizer.eos_ids
        return frozenset(token for token in model_eos_ids(self.model) if 0 <= token < self.vocab_size)

    @property
    def context(self) -> int | None:
        context: int | None = getattr(self._text_config, "max_position_embeddings", None)
        return None if context is None or context < 1 else context

    @property
    def rewindable(self) -> Any:
        return None if self._recurrent else self

    @property
    def output_matrix(self) -> Tensor | None:
        """The weight of the output layer if logits are linear in the hidden state, else None."""
        return self.head.weight if self.head is not None and self._is_linear else None

    def run(self, **inputs: Any) -> tuple[Any, Tensor | None]:
        """The output of `forward` and the input of the head, (N, T, D)."""
        hidden: list[Tensor] = []
        head = self.head
        if head is None:
            return self.model(**inputs, return_dict=True), None
        hook = head.register_forward_pre_hook(lambda _, args: hidden.append(args[0]))
        try:
            out = self.model(**inputs, return_dict=True)
        finally:
            hook.remove()
        return out, hidden[-1] if hidden else None

    @property
    def _text_config(self) -> Any:
        return self.model.config.get_text_config(decoder=True)  # of a multimodal model, too

    @cached_property
    def _forward_parameters(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.model.forward).parameters)

    @property
    def _recurrent(self) -> bool:
        return bool(self.model._is_stateful)

    @cached_property
    def _is_linear(self) -> bool:
        """True if z = s·W h + b with one s for all h, tested with a forward pass.

        Families change logits (caps, scales) in many places, which no setting lists.
        """
        # In half precision a high cap changes the logits less than rounding does, so check it by name.
        probe = None if getattr(self._text_config, "final_logit_softcapping", None) else self._probe()
        if probe is None:
            return False
        logits_2V, hidden_2D = probe
        change_V = (logits_2V[0] - logits_2V[1]).double()
        product_V = (self.head.weight.detach().double() @ (hidden_2D[0] - hidden_2D[1]).double()).to(change_V)
        if change_V.shape != product_V.shape:
            return False
        scale = (change_V @ product_V) / (product_V @ product_V)
        error = (change_V - scale * product_V).abs().max()
        allowed = 1e-4 if logits_2V.dtype == torch.float32 else 1e-2
        return bool(error <= allowed * change_V.abs().max())

    @inference_method
    def _probe(self) -> tuple[Tensor, Tensor] | None:
        """Logits and hidden states of two short prompts."""
        raise NotImplementedError


def steps_at_all_positions(out: Any, hidden_NTD: Tensor | None) -> Step:
    """A Step with one row per position of each sequence."""
    hidden = None if hidden_NTD is None else hidden_NTD.flatten(0, 1)
    return step_from_logits(out.logits.flatten(0, 1), hidden)


def step_at_last_position(out: Any, hidden_NTD: Tensor | None) -> Step:
    """A Step of the last position of each sequence."""
    return step_from_logits(out.logits[:, -1], None if hidden_NTD is None else hidden_NTD[:, -1])


CACHE_NAMES = ("past_key_values", "cache_params")
"""Names of the cache in `forward` and its output, by family."""
ATTENTION_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
"""Layer types whose cache is keys and values only."""


@dataclass
class CausalState:
    """The transformers cache and its padding mask."""

    cache: Any
    mask_NT: Tensor
    """True for tokens, False for padding."""
    is_padded: bool

    @torch.inference_mode()
    def select(self, rows_M: Tensor) -> CausalState:
        if rows_M.tolist() == list(range(len(self.mask_NT))):
            return self
        cache = _reorder_cache(self.cache, rows_M)
        return CausalState(cache, self.mask_NT.index_select(0, rows_M), self.is_padded)

    @property
    def length(self) -> int:
        return self.mask_NT.shape[1]

    @property
    def pads(self) -> list[int]:
        return (~self.mask_NT).sum(1).tolist()

    def keys_values(self) -> list[Tensor]:
        return [part for layer in self.cache.layers for part in (layer.keys, layer.values)]

    def rebuild(self, keys_values: Iterator[Tensor], pads: list[int]) -> CausalState:
        cache = type(self.cache)()
        for layer in range(len(self.cache.layers)):
            keys, values = next(keys_values), next(keys_values)
            cache.update(keys, values, layer)
        columns_S = torch.arange(keys.shape[2], device=keys.device)
        mask_NT = columns_S >= torch.tensor(pads, device=keys.device)[:, None]
        return CausalState(cache, mask_NT, any(pads))

    def truncate(self, columns: int) -> CausalState:
        for layer in self.cache.layers:
            if (extra := layer.get_seq_length() - columns) > 0:
                layer.crop(-extra)
        return CausalState(self.cache, self.mask_NT[:, :columns], self.is_padded)


def _reorder_cache(cache: Any, rows_M: Tensor) -> Any:
    custom = _custom_cache_layer(cache)
    if custom is not None:
        raise ValueError(
            f"a {custom} cannot be reordered, which batches, beams and n > 1 need: "
            "use one prompt, Greedy() or Sample(), and n=1"
        )
    cache.reorder_cache(rows_M)
    if hasattr(cache, "linear_cache"):  # MiniMax: `reorder_cache` moves only its attention layers
        linear = cache.linear_cache
        cache.linear_cache = [
            layer.index_select(0, rows_M) if isinstance(layer, Tensor) else layer for layer in linear
        ]
    return cache


def _custom_cache_layer(cache: Any) -> str | None:
    """The name of a custom cache layer class (DeepSeek-V4), which `reorder_cache` cannot reorder."""
    kinds = (type(layer) for layer in getattr(cache, "layers", ()))
    return next((kind.__name__ for kind in kinds if kind.__module__ != "transformers.cache_utils"), None)


class TransformersCausalLM(TransformersModel):
    """A causal language model."""

    def forward(self, tokens_NT: Tensor) -> Tensor:
        """(N, T) → (N, T, V): log p of every next token after each prefix, in one parallel pass."""
        return log_softmax(self.model(input_ids=tokens_NT, use_cache=False, return_dict=True).logits)

    @property
    def prompt_reading(self) -> Self | None:
        return None if self.head is None else self

    @property
    def joining(self) -> TorchBatching | None:
        return TorchBatching(self) if self._has_plain_cache else None

    @property
    def forking(self) -> TorchBatching | None:
        return self.joining

    @cached_property
    def _has_plain_cache(self) -> bool:
        """True if it masks padding, and its cache consists of the keys and values of every token."""
        try:
            if self._recurrent or not self._masks_padding:
                return False
            _, state = self.start([[0, 1]])
        except ValueError:  # without a cache
            return False
        kinds = {type(layer) for layer in state.cache.layers}
        return kinds == {TRANSFORMERS.require("this model").cache_utils.DynamicLayer}

    @inference_method
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, CausalState]:
        return self._read_to_last(*self._batch_prompts(prompts))

    @inference_method
    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, CausalState]:
        """`start`, and the hidden states of all prompt tokens, (M, D)."""
        tokens_NT, state = self._batch_prompts(prompts)
        out, hidden_NTD = self._read(tokens_NT, state)
        assert hidden_NTD is not None
        return hidden_NTD[state.mask_NT], step_at_last_position(out, hidden_NTD), state

    @inference_method
    def step(self, state: CausalState, tokens_N: Tensor) -> tuple[Step, CausalState]:
        return self.append(state, tokens_N[:, None])

    @inference_method
    def append(self, state: CausalState, tokens_NT: Tensor) -> tuple[Step, CausalState]:
        """Append T tokens to every row; the Step after the last of them."""
        return self._read_to_last(tokens_NT, self._grow_mask(state, tokens_NT))

    def _read_to_last(self, tokens_NT: Tensor, state: CausalState) -> tuple[Step, CausalState]:
        options = {"logits_to_keep": 1} if "logits_to_keep" in self._forward_parameters else {}
        return step_at_last_position(*self._read(tokens_NT, state, **options)), state

    @inference_method
    def extend(self, state: CausalState, tokens_NT: Tensor) -> tuple[Step, CausalState]:
        state = self._grow_mask(state, tokens_NT)
        return steps_at_all_positions(*self._read(tokens_NT, state)), state

    @torch.inference_mode()
    def rewind(self, state: CausalState, tokens: int) -> CausalState:
        if not tokens:
            return state
        state.cache.crop(-tokens)
        return CausalState(state.cache, state.mask_NT[:, :-tokens], state.is_padded)

    def _batch_prompts(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, CausalState]:
        longest = max(map(len, prompts))
        if any(len(prompt) < longest for prompt in prompts) and not self._masks_padding:
            raise self._padding_error()
        return self._pad(prompts, longest)

    def _pad(self, prompts: Sequence[Sequence[int]], length: int) -> tuple[Tensor, CausalState]:
        rows = [[0] * (length - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[False] * (length - len(prompt)) + [True] * len(prompt) for prompt in prompts]
        mask_NT = torch.tensor(mask, device=self.device)
        # Recurrent models create their own cache in the first pass.
        cache = None if self._recurrent else TRANSFORMERS.require("this model").DynamicCache()
        return torch.tensor(rows, device=self.device), CausalState(cache, mask_NT, not bool(mask_NT.all()))

    @cached_property
    def _masks_padding(self) -> bool:
        """True if left padding does not change the logits, tested with forward passes.

        Some families count padding as positions (BART's decoder) or mix it into their state (MiniMax), which
        no setting tells.
        """
        if "attention_mask" not in self._forward_parameters:
            return False
        alone_1V, other_1V = (self._probe_prompt(prompt, 2) for prompt in ([0, 1], [1, 0]))
        padded_1V = self._probe_prompt([0, 1], 10)
        allowed = 1e-3 if padded_1V.dtype == torch.float32 else 0.1
        scale = (other_1V - alone_1V).abs().mean() + 1e-2
        return bool((padded_1V - alone_1V).abs().mean() <= allowed * scale)

    @inference_method
    def _probe_prompt(self, prompt: Sequence[int], length: int) -> Tensor:
        """Logits after a prompt padded to `length` and a repetition of its first token."""
        tokens_1T, state = self._pad([prompt], length)
        self._read(tokens_1T, state)
        next_11 = torch.tensor([prompt[:1]], device=self.device)
        state = self._grow_mask(state, next_11)
        return self._read(next_11, state)[0].logits[:, -1]

    @property
    def _recurrent(self) -> bool:
        kinds = getattr(self._text_config, "layer_types", None) or ()
        return super()._recurrent or not ATTENTION_LAYER_TYPES.issuperset(kinds)

    def _grow_mask(self, state: CausalState, tokens_NT: Tensor) -> CausalState:
        new = torch.ones_like(tokens_NT, dtype=torch.bool)
        return CausalState(state.cache, torch.cat((state.mask_NT, new), dim=1), state.is_padded)

    def _read(self, tokens_NT: Tensor, state: CausalState, **more: Any) -> tuple[Any, Tensor | None]:
        name = next((name for name in CACHE_NAMES if name in self._forward_parameters), None)
        if name is None:
            raise self._cache_error()
        has_attention = name == "past_key_values"
        inputs = {"input_ids": tokens_NT, name: state.cache, "use_cache": True, **more}
        if "position_ids" in self._forward_parameters:
            positions_NT = (state.mask_NT.long().cumsum(-1) - 1).clamp_(min=0)
            inputs["position_ids"] = positions_NT[:, -tokens_NT.shape[1] :]
        # Models without attention need the mask only when they read the prompts.
        if state.is_padded and (has_attention or state.cache is None):
            inputs["attention_mask"] = state.mask_NT.long()
        out, hidden_NTD = self.run(**inputs)
        state.cache = getattr(out, name, None)
        if state.cache is None:
            raise self._cache_error()
        if state.is_padded and _custom_cache_layer(state.cache) is not None:
            raise self._padding_error()
        return out, hidden_NTD

    def _padding_error(self) -> ValueError:
        return ValueError(
            f"{type(self.model).__name__} does not mask padding, so prompts of unequal lengths cannot share "
            "a batch: use batch_size=1"
        )

    def _cache_error(self) -> ValueError:
        return ValueError(
            f"{type(self.model).__name__} ({self.config.model_type}) returns no cache, which decoding token "
            "by token needs: use its own generate"
        )

    @inference_method
    def _probe(self) -> tuple[Tensor, Tensor] | None:
        out, hidden_NTD = self.run(input_ids=torch.tensor([[0], [1]], device=self.device), use_cache=False)
        return None if hidden_NTD is None else (out.logits[:, -1], hidden_NTD[:, -1])
