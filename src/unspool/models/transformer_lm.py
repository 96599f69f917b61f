"""Transformer language model (decoder-only), with the options of the GPT-2 and Llama families.

    p(y) = Π_t p(y_t | y_{<t}),   log p(· | y_{<t}) = head(norm(block_L(… block_1(embed(y_{<t})))))

Radford et al. 2019, §2.3 (papers.bib: radford2019language); Touvron et al. 2023, §2.2
(papers.bib: touvron2023llama).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from unspool.arguments import integer, number
from unspool.data.batch import Batch
from unspool.decode.lockstep import DelegatingModel
from unspool.engine.compiled_state import CompiledForking, CompiledJoining, CompiledState, prompt_state
from unspool.engine.engine_choice import module_spec
from unspool.heads.softmax import predict_step
from unspool.interfaces import AttentionStack, Step, TokenizerLike
from unspool.models.model_config import VocabularyOptions
from unspool.models.sequence_model import LanguageModel, eval_inference, inference_method, unit_embedding
from unspool.models.sources import pad_rows
from unspool.models.torch_batching import TorchBatching
from unspool.models.transformer_shape import TransformerModel, TransformerShape
from unspool.nn.attention import KVCache
from unspool.nn.positions import Rotary


@dataclass
class TransformerState:
    """The decoding state: the KV cache of every layer, and the left padding of each row.

    Rows are left-padded, so one step writes one column for all of them; padding is masked.
    """

    layers: list[KVCache]
    pad_N: Tensor
    padded: bool
    prompt_N: Tensor
    """The prompt of each row; rows of one prompt are equal in the first `prompt_length` columns."""
    prompt_length: int

    @property
    def length(self) -> int:
        """The number of filled columns, including padding."""
        return self.layers[0].length if self.layers else 0

    def positions(self, new: int) -> Tensor:
        """(N, new): the position of each new token in its row; (1, new) if all rows agree."""
        columns = torch.arange(self.length, self.length + new, device=self.pad_N.device)
        return (columns - self.pad_N[:, None]).clamp_(min=0) if self.padded else columns[None]

    def mask(self, new: int, window: int | None = None) -> Tensor | None:
        """(N, 1, new, all): the attention mask of new tokens, with an optional window; None means causal."""
        wide = window is None or self.length + new <= window
        if wide and not self.padded and (new == 1 or self.length == 0):
            return None
        query = torch.arange(self.length, self.length + new, device=self.pad_N.device)[:, None]
        key = torch.arange(self.length + new, device=self.pad_N.device)
        seen = (key >= self.pad_N[:, None, None]) & (key <= query)
        if not wide and window is not None:
            seen &= key > query - window
        # A padding column attends to itself, because a softmax over nothing would be NaN.
        return (seen | (key == query)).unsqueeze(1)

    @torch.inference_mode()
    def select(self, rows_M: Tensor) -> TransformerState:
        prompt_M = self.prompt_N[rows_M]
        same = len(rows_M) == len(self.prompt_N) and torch.equal(prompt_M, self.prompt_N)
        for layer in self.layers:
            layer.select(rows_M, since=self.prompt_length if same else 0)
        pad_M = self.pad_N[rows_M]
        return TransformerState(self.layers, pad_M, bool(pad_M.any()), prompt_M, self.prompt_length)

    def truncate(self, length: int) -> TransformerState:
        for layer in self.layers:
            layer.truncate(length)
        return self

    @property
    def pads(self) -> list[int]:
        return self.pad_N.tolist()

    def keys_values(self) -> list[Tensor]:
        return [part for layer in self.layers for part in layer.filled]

    def rebuild(self, keys_values: Iterator[Tensor], pads: list[int]) -> TransformerState:
        layers = [KVCache(CACHE_RESERVE) for _ in self.layers]
        for layer in layers:
            layer.append(next(keys_values), next(keys_values))
        pad_N = torch.tensor(pads, device=self.pad_N.device)
        return TransformerState(layers, pad_N, any(pads), torch.arange(len(pads), device=pad_N.device), 0)


CACHE_RESERVE = 128
"""Columns reserved for new tokens when a prompt is read."""


LMState = TransformerState | CompiledState
"""The decoding state of either engine."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TransformerShape, VocabularyOptions):
    """Settings of a Transformer language model."""

    layers: int = integer(at_least=1)
    embed_scale: float = number(1.0, above=0)
    """The factor of embeddings (Gemma: √width)."""
    window: int | None = integer(None, at_least=1)
    """The sliding window of `windowed_layers`, including the token itself."""
    windowed_layers: tuple[int, ...] = ()
    """Sliding-window layers, from 0 on (Gemma 2 and 3, Mistral, Phi-3)."""
    window_rotary_base: float | None = number(None, above=0)
    """The unscaled rotary base of these layers (Gemma 3); None means that of the others."""
    unrotated_layers: tuple[int, ...] = ()
    """Layers without rotary positions (SmolLM3)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("windowed_layers", "unrotated_layers"):
            if any(not 0 <= layer < self.layers for layer in getattr(self, name)):
                raise ValueError(
                    f"{name}={getattr(self, name)!r:.80} must contain layers from 0 to {self.layers - 1}"
                )
        if self.windowed_layers and self.window is None:
            raise ValueError("windowed_layers needs window: give it a value")

    def rotaries(self) -> list[Rotary | None]:
        rotary_default, windowed = self.rotary(), self.rotary()
        if rotary_default is not None and self.window_rotary_base is not None:
            windowed = Rotary(self.each_width, self.window_rotary_base, turned_width=self.rotary_width)
        return [
            None
            if layer in self.unrotated_layers
            else windowed
            if layer in self.windowed_layers and self.window_rotary_base is not None
            else rotary_default
            for layer in range(self.layers)
        ]

    def windows(self) -> list[int | None]:
        """The sliding window of every layer; None means full attention."""
        return [self.window if layer in self.windowed_layers else None for layer in range(self.layers)]

    def build(self, tokenizer: TokenizerLike | None = None) -> TransformerLM:
        return TransformerLM(self, tokenizer)


class TransformerLM(LanguageModel, TransformerModel):
    """A decoder-only Transformer."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig, tokenizer: TokenizerLike | None = None) -> None:
        super().__init__(config, TransformerConfig, tokenizer)
        c = config
        self.embed = unit_embedding(c.vocab_size, c.width)
        self.init_stack(c, c.layers, causal=True)
        self._rotaries, self._windows = c.rotaries(), c.windows()
        self.head: Any = self.new_head(c.tied)
        self.built = module_spec(self)

    @property
    def layers(self) -> int:
        return self.config.layers

    @property
    def rewindable(self) -> Self:
        return self

    @property
    def joining(self) -> CompiledJoining | TorchBatching:
        return CompiledJoining() if self.engine == "compiled" else TorchBatching(self)

    @property
    def forking(self) -> CompiledForking | TorchBatching:
        return CompiledForking() if self.engine == "compiled" else TorchBatching(self)

    @property
    def prompt_reading(self) -> Self:
        return self

    @property
    def layered(self) -> Self:
        return self

    def hidden(
        self, tokens_NT: Tensor, state: TransformerState | None = None, attentions: list[Tensor] | None = None
    ) -> Tensor:
        """(N, T) → (N, T, D): the input of the head at every position, after the tokens in `state`."""
        for x_NTD in self.depths(tokens_NT, state, attentions):
            last_NTD = x_NTD
        return self.norm(last_NTD)

    def hidden_for(self, batch: Batch) -> Tensor:
        return self.hidden(batch.inputs_NT)

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        attentions: list[Tensor] = []
        hidden_NTD = self.hidden(batch.inputs_NT, attentions=attentions)
        return hidden_NTD, (AttentionStack(tuple(attentions), batch.lengths_N),)

    def depths(
        self, tokens_NT: Tensor, state: TransformerState | None = None, attentions: list[Tensor] | None = None
    ) -> Iterator[Tensor]:
        """Yield (N, T, D) before the first block and after each block."""
        state = self._empty(tokens_NT) if state is None else state
        T = tokens_NT.shape[1]
        masks = {window: state.mask(T, window) for window in dict.fromkeys(self._windows)}
        x_NTD = self.embed(tokens_NT)
        if self.config.embed_scale != 1.0:
            x_NTD = x_NTD * self.config.embed_scale
        pasts: Sequence[KVCache | None] = state.layers or [None] * len(self.blocks)
        layers = zip(self._windows, pasts, strict=True)
        arguments = [(masks[window], past, attentions) for window, past in layers]
        return self.run_depths(x_NTD, state.positions(T), state.length + T, arguments)

    @inference_method
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, LMState]:
        if self.engine == "compiled":
            state = prompt_state(self, len(prompts))
            return state.read_rows(prompts), state
        hidden_NTD, past = self._read_padded(prompts)
        return predict_step(self.head, hidden_NTD[:, -1]), past

    @inference_method
    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, LMState]:
        """`start`, and the input of the head at every token of the prompts, (M, D)."""
        if self.engine == "compiled":
            state = prompt_state(self, len(prompts))
            hidden_MD, last_N = state.read_texts(prompts)
            return hidden_MD, state.predict_step(hidden_MD[last_N]), state
        hidden_NTD, past = self._read_padded(prompts)
        tokens_MD = [row_TD[-len(prompt) :] for row_TD, prompt in zip(hidden_NTD, prompts, strict=True)]
        return torch.cat(tokens_MD), predict_step(self.head, hidden_NTD[:, -1]), past

    def _read_padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, TransformerState]:
        tokens_NT, state = self.padded(prompts)
        return self.hidden(tokens_NT, state), state

    def padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, TransformerState]:
        """The left-padded prompts, and an empty state for them."""
        tokens_NT, lengths_N = pad_rows(prompts, self.device, left=True)
        pad_N = tokens_NT.shape[1] - lengths_N
        layers = [KVCache(CACHE_RESERVE) for _ in self.blocks]
        rows_N = torch.arange(len(prompts), device=self.device)
        return tokens_NT, TransformerState(layers, pad_N, bool(pad_N.any()), rows_N, tokens_NT.shape[1])

    @inference_method
    def step(self, state: LMState, tokens_N: Tensor) -> tuple[Step, LMState]:
        if isinstance(state, CompiledState):
            return state.step(tokens_N), state
        return self.append(state, tokens_N[:, None])

    @inference_method
    def append(self, state: TransformerState, tokens_NT: Tensor) -> tuple[Step, TransformerState]:
        """Append T tokens to every row; the Step after the last of them."""
        return predict_step(self.head, self.hidden(tokens_NT, state)[:, -1]), state

    @inference_method
    def extend(self, state: LMState, tokens_NT: Tensor) -> tuple[Step, LMState]:
        if isinstance(state, CompiledState):
            return state.extend(tokens_NT), state
        return predict_step(self.head, self.hidden(tokens_NT, state).flatten(0, 1)), state

    def rewind(self, state: LMState, tokens: int) -> LMState:
        if isinstance(state, CompiledState):
            return state.rewind(tokens)
        return state.truncate(state.length - tokens)

    def exits(self, layers: Sequence[int]) -> Exits:
        """The same model with early exits after these numbers of blocks (0 means the embedding)."""
        return Exits(self, tuple(layers))

    def _empty(self, tokens_NT: Tensor) -> TransformerState:
        """A state without a cache, for one parallel pass over whole sequences."""
        pad_N = torch.zeros(len(tokens_NT), dtype=torch.long, device=tokens_NT.device)
        return TransformerState([], pad_N, False, pad_N, 0)


@dataclass(frozen=True)
class Exits(DelegatingModel):
    """Early exits (logit lens): a Transformer that also applies its head to early layers.

        log p_ℓ(· | y_{<t}) = head(norm(x_ℓ)),   x_ℓ = block_ℓ(… block_1(embed(y_{<t})))

    nostalgebraist 2020, "logit lens" (papers.bib: nostalgebraist2020logit); used for contrast by Chuang et
    al. 2024, §2 (papers.bib: chuang2024dola). x_0 is the embedding, before any block. Steps have `exits_NEV`;
    weights and states are those of the model.

    Differs from Chuang et al.'s code: the final norm is applied at every depth, as the head was trained with
    it, not only at the last.
    """

    model: TransformerLM
    layers: tuple[int, ...]
    """The number of blocks before each exit."""

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("layers is empty: name at least one layer")
        for layer in self.layers:
            if not 0 <= layer < self.model.layers:
                raise ValueError(
                    f"layer {layer} is not an early one of {self.model.layers}: choose from 0 "
                    f"(the embedding) to {self.model.layers - 1}"
                )

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, LMState]:
        with eval_inference(self.model):
            if self.model.engine == "compiled":
                state = prompt_state(self.model, len(prompts))
                return state.exits(prompts, self.layers), state
            tokens_NT, past = self.model.padded(prompts)
            return self._predict(tokens_NT, past), past

    def step(self, state: LMState, tokens_N: Tensor) -> tuple[Step, LMState]:
        with eval_inference(self.model):
            if isinstance(state, CompiledState):
                return state.exits(tokens_N[:, None].tolist(), self.layers), state
            return self._predict(tokens_N[:, None], state), state

    def _predict(self, tokens_NT: Tensor, state: TransformerState) -> Step:
        depth_ND = [x_NTD[:, -1] for x_NTD in self.model.depths(tokens_NT, state)]
        hidden_ND = self.model.norm(depth_ND[-1])
        early_NED = torch.stack([self.model.norm(depth_ND[layer]) for layer in self.layers], dim=1)
        return replace(predict_step(self.model.head, hidden_ND), exits_NEV=self.model.head(early_NED))
