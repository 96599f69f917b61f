"""A Transformer language model, with every option that the GPT-2 and Llama families differ in.

    p(y) = Π_t p(y_t | y_{<t}),   log p(· | y_{<t}) = head(norm(block_L(… block_1(embed(y_{<t})))))

Radford et al. 2019, §2.3 (papers.bib: radford2019language); Touvron et al. 2023, §2.2
(papers.bib: touvron2023llama).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from unspool.engine.compiled_state import CompiledForking, CompiledJoining, CompiledState
from unspool.engine.compiled_transformer import prompt_state
from unspool.engine.engine_choice import module_spec
from unspool.heads.softmax import predict_step
from unspool.interfaces import AttentionStack, Step
from unspool.models.early_exits import Exits
from unspool.models.model_config import VocabularyOptions, at_least_one, needs, positive
from unspool.models.sequence_model import LanguageModel, decodes, unit_embedding
from unspool.models.transformer_shape import TransformerShape
from unspool.nn.attention import KVCache
from unspool.nn.positions import Rotary, add_positions

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.interfaces import TokenizerLike


@dataclass
class TransformerState:
    """Keys and values of every layer, and how many columns each row leaves empty on its left.

    What a Transformer remembers of the rows that it is decoding.

    Rows of different lengths stand flush right, so that one step writes one column for all of them; the
    columns to the left of a shorter row are never looked at.
    """

    layers: list[KVCache]
    pad_N: Tensor
    padded: bool
    prompt_N: Tensor
    """Which prompt each row began with: rows of one prompt agree on the first `prompt_length` columns."""
    prompt_length: int

    @property
    def length(self) -> int:
        """Columns filled, empty ones on the left included."""
        return self.layers[0].length if self.layers else 0

    def positions(self, new: int) -> Tensor:
        """(N, new): the place of each new token in its own row; (1, new) where all rows agree."""
        columns = torch.arange(self.length, self.length + new, device=self.pad_N.device)
        return (columns - self.pad_N[:, None]).clamp_(min=0) if self.padded else columns[None]

    def mask(self, new: int, window: int | None = None) -> Tensor | None:
        """(N, 1, new, all): where new tokens may look, in a window or anywhere; None: a causal triangle."""
        wide = window is None or self.length + new <= window
        if wide and not self.padded and (new == 1 or self.length == 0):
            return None
        query = torch.arange(self.length, self.length + new, device=self.pad_N.device)[:, None]
        key = torch.arange(self.length + new, device=self.pad_N.device)
        seen = (key >= self.pad_N[:, None, None]) & (key <= query)
        if not wide and window is not None:
            seen &= key > query - window
        # A padding column looks at itself: a softmax over nothing would be NaN.
        return (seen | (key == query)).unsqueeze(1)

    @torch.inference_mode()
    def select(self, rows_M: Tensor) -> TransformerState:
        """Reorder, repeat or drop rows."""
        prompt_M = self.prompt_N[rows_M]
        same = len(rows_M) == len(self.prompt_N) and torch.equal(prompt_M, self.prompt_N)
        for layer in self.layers:
            layer.select(rows_M, since=self.prompt_length if same else 0)
        pad_M = self.pad_N[rows_M]
        return TransformerState(self.layers, pad_M, bool(pad_M.any()), prompt_M, self.prompt_length)

    def truncate(self, length: int) -> TransformerState:
        """Forget the columns from `length` on."""
        for layer in self.layers:
            layer.truncate(length)
        return self


ROOM = 128
"""Columns kept free for new tokens when a prompt is read."""


LMState = TransformerState | CompiledState
"""What the model remembers, of whichever engine."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TransformerShape, VocabularyOptions):
    """The shape of a Transformer language model."""

    layers: int
    embed_scale: float = 1.0
    """What an embedding is multiplied by (Gemma: √width)."""
    window: int | None = None
    """How many tokens, itself included, a token sees in `windowed_layers`."""
    windowed_layers: tuple[int, ...] = ()
    """Sliding-window layers, from 0 on (Gemma 2 and 3, Mistral, Phi-3)."""
    window_rotary_base: float | None = None
    """The rotary base of these layers, which no stretching touches; None is that of all others (Gemma 3)."""
    unrotated_layers: tuple[int, ...] = ()
    """Layers without rotary positions (SmolLM3)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "vocab_size", "layers", "window")
        positive(self, "embed_scale")
        for name in ("windowed_layers", "unrotated_layers"):
            if any(not 0 <= layer < self.layers for layer in getattr(self, name)):
                raise ValueError(
                    f"{name}={getattr(self, name)!r:.80} names a layer that there is not: they run from 0 to "
                    f"{self.layers - 1}"
                )
        if self.windowed_layers:
            needs({"window": self.window}, "windowed_layers")

    def rotaries(self) -> list[Rotary | None]:
        """What turns queries and keys in every layer."""
        most, windowed = self.rotary(), self.rotary()
        if most is not None and self.window_rotary_base is not None:
            windowed = Rotary(self.each_width, self.window_rotary_base, turned_width=self.rotary_width)
        return [
            None
            if layer in self.unrotated_layers
            else windowed
            if layer in self.windowed_layers and self.window_rotary_base is not None
            else most
            for layer in range(self.layers)
        ]

    def windows(self) -> list[int | None]:
        """How far every layer sees; None: to the beginning."""
        return [self.window if layer in self.windowed_layers else None for layer in range(self.layers)]

    def build(self, text: TokenizerLike | None = None) -> TransformerLM:
        """A model of this shape, with random weights."""
        return TransformerLM(self, text)


class TransformerLM(LanguageModel):
    """Reads tokens left to right and says how probable each next one is."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig, text: TokenizerLike | None = None) -> None:
        super().__init__(config, TransformerConfig, text)
        c = config
        self.embed = unit_embedding(c.vocab_size, c.width)
        self.positions = c.added()
        self._rotary = c.rotary()
        self._rotaries, self._windows = c.rotaries(), c.windows()
        self.dropout = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(c.block(causal=True) for _ in range(c.layers))
        self.norm = c.last_norm()
        self.head: Any = self.new_head(c.tied)
        self.built = module_spec(self)

    @property
    def context(self) -> int | None:
        """The most tokens of a row; None: any number."""
        return self.config.context

    @property
    def layers(self) -> int:
        """How many blocks there are."""
        return self.config.layers

    @property
    def rewindable(self) -> Self:
        """It can forget what it has read."""
        return self

    @property
    def joining(self) -> CompiledJoining | None:
        """Rows of many askers stand in one state where its steps are compiled."""
        return CompiledJoining() if self.engine == "compiled" else None

    @property
    def forking(self) -> CompiledForking | None:
        """What texts have in common is read once, where its steps are compiled."""
        return CompiledForking() if self.engine == "compiled" else None

    @property
    def prompt_reading(self) -> Self:
        """It can tell what its head would have read."""
        return self

    @property
    def layered(self) -> Self:
        """It can tell what its early layers would have said."""
        return self

    @property
    def attention_heads(self) -> tuple[tuple[int, int], ...]:
        """Its layers, and the heads in each."""
        return ((self.config.layers, self.config.heads),)

    @property
    def attention_reading(self) -> Self:
        """It can tell where its heads look."""
        return self

    def hidden(
        self, tokens_NT: Tensor, state: LMState | None = None, attentions: list[Tensor] | None = None
    ) -> Tensor:
        """(N, T) → (N, T, D): what the head reads at every position, after the tokens in `state`."""
        if isinstance(state, CompiledState):
            return state.hidden(tokens_NT)
        for x_NTD in self.depths(tokens_NT, state, attentions):
            last_NTD = x_NTD
        normed: Tensor = self.norm(last_NTD)
        return normed

    def hidden_for(self, batch: Batch) -> Tensor:
        """(N, T, D): rows are padded on the right, where no earlier token looks."""
        return self.hidden(batch.inputs_NT)

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        """`hidden_for`, and where the heads of every layer look."""
        attentions: list[Tensor] = []
        hidden_NTD = self.hidden(batch.inputs_NT, attentions=attentions)
        return hidden_NTD, (AttentionStack(tuple(attentions), batch.lengths_N),)

    def depths(
        self, tokens_NT: Tensor, state: TransformerState | None = None, attentions: list[Tensor] | None = None
    ) -> Iterator[Tensor]:
        """(N, T) → (N, T, D) again and again: before the first block, then after each of them."""
        state = self._empty(tokens_NT) if state is None else state
        T = tokens_NT.shape[1]
        positions_NT = state.positions(T)
        masks = {window: state.mask(T, window) for window in dict.fromkeys(self._windows)}
        x_NTD = self.embed(tokens_NT)
        if self.config.embed_scale != 1.0:
            x_NTD = x_NTD * self.config.embed_scale
        if self.positions is not None:
            x_NTD = add_positions(x_NTD, self.positions(positions_NT))
        needed = state.length + T
        turns = {
            it: it.tables(positions_NT, needed) for it in dict.fromkeys(self._rotaries) if it is not None
        }
        x_NTD = self.dropout(x_NTD)
        yield x_NTD
        pasts: Sequence[KVCache | None] = state.layers or [None] * len(self.blocks)
        for layer, (block, past) in enumerate(zip(self.blocks, pasts, strict=True)):
            rotary, window = self._rotaries[layer], self._windows[layer]
            x_NTD = block(x_NTD, None if rotary is None else turns[rotary], masks[window], past, attentions)
            yield x_NTD

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, LMState]:
        """Read the prompts in one pass, the shorter ones flush right."""
        _, step, state = self.read_all(prompts)
        return step, state

    @decodes
    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, LMState]:
        """`start`, and what the head would read at every place of the prompts: (N, T, D), flush right."""
        tokens_NT, state = self.lay_out(prompts)
        hidden_NTD = self.hidden(tokens_NT, state)
        hidden_ND = hidden_NTD[:, -1]
        if isinstance(state, CompiledState):
            return hidden_NTD, state.predict_step(hidden_ND), state
        return hidden_NTD, predict_step(self.head, hidden_ND), state

    def lay_out(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, LMState]:
        """Prompts of any lengths as one batch, the shorter ones flush right, and a state to read it."""
        longest = max(len(prompt) for prompt in prompts)
        rows = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        if self.engine == "compiled":
            return torch.tensor(rows), prompt_state(self, prompts)
        pad_N = torch.tensor([longest - len(prompt) for prompt in prompts], device=self.device)
        state = TransformerState(
            [KVCache(ROOM) for _ in self.blocks],
            pad_N,
            bool(pad_N.any()),
            torch.arange(len(prompts), device=self.device),
            longest,
        )
        return torch.tensor(rows, device=self.device), state

    @decodes
    def step(self, state: LMState, tokens_N: Tensor) -> tuple[Step, LMState]:
        """Append one token to every row."""
        if isinstance(state, CompiledState):
            return state.step(tokens_N), state
        hidden_ND = self.hidden(tokens_N[:, None], state)[:, 0]
        return predict_step(self.head, hidden_ND), state

    @decodes
    def extend(self, state: LMState, tokens_NT: Tensor) -> tuple[Step, LMState]:
        """Append T tokens to every row; the Step has T rows for each of them."""
        if isinstance(state, CompiledState):
            return state.extend(tokens_NT), state
        return predict_step(self.head, self.hidden(tokens_NT, state).flatten(0, 1)), state

    def rewind(self, state: LMState, tokens: int) -> LMState:
        """Forget the last `tokens` tokens of every row."""
        if isinstance(state, CompiledState):
            return state.rewind(tokens)
        return state.truncate(state.length - tokens)

    def exits(self, layers: Sequence[int]) -> Exits:
        """The same model, whose Steps also say what these layers would (0 = no block, 1 = the first)."""
        return Exits(self, tuple(layers))

    def _empty(self, tokens_NT: Tensor) -> TransformerState:
        """A state that remembers nothing: for one parallel pass over whole sequences."""
        pad_N = torch.zeros(len(tokens_NT), dtype=torch.long, device=tokens_NT.device)
        return TransformerState([], pad_N, False, pad_N, 0)
