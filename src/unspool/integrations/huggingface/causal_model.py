"""What every model of transformers has as a StepModel: its size, its output matrix, and what a pass says.

    log p = log_softmax(z),   log_norm = logsumexp(z),   z the logits that `forward` returns

What the head reads is taken at the head's door (a hook for the time of one pass): no family's way of getting
there, such as a scale before the head or a norm inside the decoder, has to be known.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from unspool.heads.softmax import log_softmax
from unspool.integrations.loading import TRANSFORMERS
from unspool.interfaces import Abilities, Step
from unspool.models.sequence_model import decodes
from unspool.models.sources import Ends

if TYPE_CHECKING:
    from unspool.interfaces import TokenizerLike


@dataclass(frozen=True)
class SpecialTokens(Ends):
    """Where an answer begins, and where a text ends.

    The tokens that begin and end what an encoder–decoder of transformers reads and writes.

    Their settings say it in several places: `generation_config` first, then `config`; an answer begins with
    the decoder's own start token, where there is one, else with BOS.
    """

    @classmethod
    def of(cls, model: Any, text: TokenizerLike | None) -> SpecialTokens:  # type: ignore[override]
        """From the settings of a model, or else from its text."""
        eos = model_eos_ids(model) or (text.eos_ids if text is not None else frozenset())
        bos = generation_setting(model, "decoder_start_token_id")
        bos = generation_setting(model, "bos_token_id") if bos is None else bos
        if bos is None or not eos:
            raise ValueError(
                f"the settings of this {type(model).__name__} do not say which token begins an answer "
                "(decoder_start_token_id) and which ends it (eos_token_id): set them in its generation_config"
            )
        return cls(bos, eos)

    def source(self, prompt: Sequence[int]) -> list[int]:
        """x₁ … xₙ EOS: EOS is written where it is missing, and nothing is taken off."""
        ids = list(prompt)
        return ids if ids[-1] in self.eos else [*ids, min(self.eos)]


def generation_setting(model: Any, name: str) -> Any:
    """A setting of `generate`, or else of the model; None where neither has it."""
    for settings in (model.generation_config, model.config):
        value = getattr(settings, name, None)
        if value is not None:
            return value
    return None


def model_eos_ids(model: Any) -> frozenset[int]:
    """The tokens that end a text."""
    return as_token_ids(generation_setting(model, "eos_token_id"))


def as_token_ids(value: Any) -> frozenset[int]:
    """Their settings have one token, several, or none."""
    if value is None:
        return frozenset()
    found = value if isinstance(value, list | tuple) else [value]
    return frozenset(token for token in found if isinstance(token, int) and not isinstance(token, bool))


ENGINE = "transformers"


class TransformersModel(nn.Module, Abilities):
    """A model of transformers; a subclass says how it reads prompts."""

    def __init__(self, model: Any, text: TokenizerLike | None) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = text

    @property
    def config(self) -> Any:
        """Their settings."""
        return self.model.config

    @property
    def head(self) -> Any:
        """Their output layer; None if the model shows none, or shows its embedding instead (FSMT)."""
        found = self.model.get_output_embeddings()
        return None if isinstance(found, nn.Embedding) else found

    @property
    def engine(self) -> str:
        """Who runs the steps."""
        return ENGINE

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        where: torch.device = next(self.model.parameters()).device
        return where

    @cached_property
    def vocab_size(self) -> int:
        """Width of the logits."""
        shown = self.model.get_output_embeddings()
        size: int = self._settings.vocab_size if shown is None else shown.weight.shape[0]
        return size

    @property
    def eos_ids(self) -> frozenset[int]:
        """The tokenizer's, or else those of their generation_config or config."""
        if self.tokenizer is not None:
            return self.tokenizer.eos_ids
        return frozenset(token for token in model_eos_ids(self.model) if 0 <= token < self.vocab_size)

    @property
    def context(self) -> int | None:
        """The positions that it has, or was trained for; None where its settings name none."""
        found: int | None = getattr(self._settings, "max_position_embeddings", None)
        return None if found is None or found < 1 else found

    @property
    def rewindable(self) -> Any:
        """Itself, unless it is recurrent: what such a model has read, it cannot forget."""
        return None if self._recurrent else self

    @property
    def output_matrix(self) -> Tensor | None:
        """Their output layer's, where the logits are its products with what it reads, but for a bias."""
        weight: Tensor | None = self.head.weight if self.head is not None and self._is_linear else None
        return weight

    def run(self, **inputs: Any) -> tuple[Any, Tensor | None]:
        """What their `forward` returns, and what the head has read: (N, T, D)."""
        read: list[Tensor] = []
        head = self.head
        if head is None:
            return self.model(**inputs, return_dict=True), None
        hook = head.register_forward_pre_hook(lambda _, given: read.append(given[0]))
        try:
            out = self.model(**inputs, return_dict=True)
        finally:
            hook.remove()
        return out, read[-1] if read else None

    @property
    def _settings(self) -> Any:
        """Those of the part that writes text, where a model has others, too."""
        return self.model.config.get_text_config(decoder=True)

    @cached_property
    def _takes(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.model.forward).parameters)

    @property
    def _recurrent(self) -> bool:
        return bool(self.model._is_stateful)

    @cached_property
    def _is_linear(self) -> bool:
        """Whether z = s·W h + b with one s for all h.

        The model itself is asked: families hide what they do to logits (caps, scales) in many places.
        """
        # Half precision rounds as much away as a cap far above the logits takes: it is asked for by its name.
        two = None if getattr(self._settings, "final_logit_softcapping", None) else self._probe()
        if two is None:
            return False
        logits_2V, hidden_2D = two
        change_V = (logits_2V[0] - logits_2V[1]).double()
        product_V = (self.head.weight.detach().double() @ (hidden_2D[0] - hidden_2D[1]).double()).to(change_V)
        if change_V.shape != product_V.shape:
            return False
        scale = (change_V @ product_V) / (product_V @ product_V)
        error = (change_V - scale * product_V).abs().max()
        allowed = 1e-4 if logits_2V.dtype == torch.float32 else 1e-2
        return bool(error <= allowed * change_V.abs().max())

    @decodes
    def _probe(self) -> tuple[Tensor, Tensor] | None:
        """The logits after two short texts, and what the head has read."""
        raise NotImplementedError


def step_from_logits(logits_NV: Tensor, hidden_ND: Tensor | None, attention: Tensor | None = None) -> Step:
    """One Step of logits."""
    logits_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    return Step(log_softmax(logits_NV), hidden_ND, attention, log_norm_N=logits_NV.logsumexp(-1))


def steps_at_all_positions(out: Any, hidden_NTD: Tensor | None) -> Step:
    """A Step of every place of every row."""
    hidden = None if hidden_NTD is None else hidden_NTD.flatten(0, 1)
    return step_from_logits(out.logits.flatten(0, 1), hidden)


def step_at_last_position(out: Any, hidden_NTD: Tensor | None) -> Step:
    """A Step of every row's last place."""
    return step_from_logits(out.logits[:, -1], None if hidden_NTD is None else hidden_NTD[:, -1])


# A causal language model of transformers as a StepModel: any family that their `generate` serves.
#
# Prompts of unequal lengths stand flush right in one batch; the cache grows a column a step, and a beam moves
# its rows. A model of attention alone gets a cache that keeps every column, those outside of a sliding
# window, too (the mask hides them), so that tokens can be forgotten again. Recurrent and hybrid models make
# their own cache in their first pass and cannot be rewound.


CACHE_NAMES = ("past_key_values", "cache_params", "state")
"""What families call the cache, in `forward` and in what it returns."""
ATTENTION_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
"""Kinds of layers whose cache is keys and values only."""


@dataclass
class CausalState:
    """Their cache, and which of its columns are no padding."""

    cache: Any
    seen_NT: Tensor
    """True where a column holds a token of the row."""
    padded: bool

    @torch.inference_mode()
    def select(self, rows_M: Tensor) -> CausalState:
        """Reorder, repeat or drop rows."""
        if rows_M.tolist() == list(range(len(self.seen_NT))):
            return self
        cache = _reorder_cache(self.cache, rows_M)
        return CausalState(cache, self.seen_NT.index_select(0, rows_M), self.padded)


def _reorder_cache(cache: Any, rows_M: Tensor) -> Any:
    if isinstance(cache, list):  # RWKV
        return [part.index_select(0, rows_M) for part in cache]
    foreign = _custom_cache_layer(cache)
    if foreign is not None:
        raise ValueError(
            f"rows of a {foreign} cannot be reordered, which batches, beams and n > 1 need: "
            "give one prompt, Greedy() or Sample(), and n=1"
        )
    cache.reorder_cache(rows_M)
    if hasattr(cache, "linear_cache"):  # MiniMax: `reorder_cache` moves its layers of attention only
        linear = cache.linear_cache
        cache.linear_cache = [it.index_select(0, rows_M) if isinstance(it, Tensor) else it for it in linear]
    return cache


def _custom_cache_layer(cache: Any) -> str | None:
    """A family's own class of cache layers (DeepSeek-V4): `reorder_cache` misses a part of what they keep."""
    kinds = (type(layer) for layer in getattr(cache, "layers", ()))
    return next((kind.__name__ for kind in kinds if kind.__module__ != "transformers.cache_utils"), None)


class TransformersCausalLM(TransformersModel):
    """Continues prompts."""

    def forward(self, tokens_NT: Tensor) -> Tensor:
        """(N, T) → (N, T, V): log p of every next token after each prefix, in one parallel pass."""
        return log_softmax(self.model(input_ids=tokens_NT, use_cache=False, return_dict=True).logits)

    @property
    def prompt_reading(self) -> Self | None:
        """It can tell what its head would have read, where it shows its head."""
        return None if self.head is None else self

    @decodes
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, CausalState]:
        """Read the prompts in one pass, the shorter ones flush right."""
        tokens_NT, state = self._lay_out(prompts)
        kept = {"logits_to_keep": 1} if "logits_to_keep" in self._takes else {}
        out, hidden_NTD = self._read(tokens_NT, state, **kept)
        return step_at_last_position(out, hidden_NTD), state

    @decodes
    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, CausalState]:
        """`start`, and what the head would read at every place of the prompts: (N, T, D), flush right."""
        tokens_NT, state = self._lay_out(prompts)
        out, hidden_NTD = self._read(tokens_NT, state)
        assert hidden_NTD is not None
        return hidden_NTD, step_at_last_position(out, hidden_NTD), state

    @decodes
    def step(self, state: CausalState, tokens_N: Tensor) -> tuple[Step, CausalState]:
        """Append one token to every row."""
        state = self._grown(state, tokens_N[:, None])
        return step_at_last_position(*self._read(tokens_N[:, None], state)), state

    @decodes
    def extend(self, state: CausalState, tokens_NT: Tensor) -> tuple[Step, CausalState]:
        """Append T tokens to every row; the Step has T rows for each of them."""
        state = self._grown(state, tokens_NT)
        return steps_at_all_positions(*self._read(tokens_NT, state)), state

    @torch.inference_mode()
    def rewind(self, state: CausalState, tokens: int) -> CausalState:
        """Forget the last `tokens` tokens of every row."""
        if not tokens:
            return state
        state.cache.crop(-tokens)
        return CausalState(state.cache, state.seen_NT[:, :-tokens], state.padded)

    def _lay_out(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, CausalState]:
        longest = max(map(len, prompts))
        padded = any(len(prompt) < longest for prompt in prompts)
        if padded and not self._masks_padding:
            raise self._no_padding()
        return self._padded(prompts, longest, padded)

    def _padded(
        self, prompts: Sequence[Sequence[int]], longest: int, padded: bool
    ) -> tuple[Tensor, CausalState]:
        rows = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        seen = [[False] * (longest - len(prompt)) + [True] * len(prompt) for prompt in prompts]
        state = CausalState(self._new_cache(), torch.tensor(seen, device=self.device), padded)
        return torch.tensor(rows, device=self.device), state

    @cached_property
    def _masks_padding(self) -> bool:
        """Whether padding in front of a prompt changes nothing.

        The model itself is asked: some families count padding as positions (BART's decoder) or mix it into
        their state (MiniMax), and nothing in their settings says so.
        """
        if "state" in self._takes:
            return True  # padding is not read at all
        if "attention_mask" not in self._takes:
            return False
        alone_1V, other_1V = (self._probe_text(text, 2) for text in ([0, 1], [1, 0]))
        padded_1V = self._probe_text([0, 1], 10)
        allowed = 1e-3 if padded_1V.dtype == torch.float32 else 0.1
        scale = (other_1V - alone_1V).abs().mean() + 1e-2
        return bool((padded_1V - alone_1V).abs().mean() <= allowed * scale)

    @decodes
    def _probe_text(self, text: Sequence[int], length: int) -> Tensor:
        """Logits after a text that is padded to a length, and its first token once more."""
        tokens_1T, state = self._padded([text], length, length > len(text))
        self._read(tokens_1T, state)
        again_11 = torch.tensor([text[:1]], device=self.device)
        state = self._grown(state, again_11)
        logits: Tensor = self._read(again_11, state)[0].logits[:, -1]
        return logits

    @property
    def _recurrent(self) -> bool:
        kinds = getattr(self._settings, "layer_types", None) or ()
        return super()._recurrent or not ATTENTION_LAYER_TYPES.issuperset(kinds)

    def _new_cache(self) -> Any:
        """A recurrent model makes its own in its first pass."""
        return None if self._recurrent else TRANSFORMERS.imported("this model").DynamicCache()

    def _grown(self, state: CausalState, tokens_NT: Tensor) -> CausalState:
        new = torch.ones_like(tokens_NT, dtype=torch.bool)
        return CausalState(state.cache, torch.cat((state.seen_NT, new), dim=1), state.padded)

    def _read(self, tokens_NT: Tensor, state: CausalState, **more: Any) -> tuple[Any, Tensor | None]:
        name = next((it for it in CACHE_NAMES if it in self._takes), None)
        if name is None:
            raise self._no_cache()
        if name == "state":
            return self._read_rows(tokens_NT, state)
        attends = name == "past_key_values"
        inputs = {"input_ids": tokens_NT, name: state.cache, "use_cache": True, **more}
        if "position_ids" in self._takes:
            places_NT = (state.seen_NT.long().cumsum(-1) - 1).clamp_(min=0)
            inputs["position_ids"] = places_NT[:, -tokens_NT.shape[1] :]
        # What has no attention has taken padding out of its memory when it has read the prompts.
        if state.padded and (attends or state.cache is None):
            inputs["attention_mask"] = state.seen_NT.long()
        out, hidden_NTD = self.run(**inputs)
        state.cache = getattr(out, name, None)
        if state.cache is None:
            raise self._no_cache()
        if state.padded and _custom_cache_layer(state.cache) is not None:
            raise self._no_padding()
        return out, hidden_NTD

    def _read_rows(self, tokens_NT: Tensor, state: CausalState) -> tuple[Any, Tensor | None]:
        """Read each row alone and without padding: RWKV's step adds the rows of a batch to one another."""
        logits, hidden, states = [], [], []
        for n, seen_T in enumerate(state.seen_NT[:, -tokens_NT.shape[1] :]):
            past = None if state.cache is None else [part[n : n + 1].clone() for part in state.cache]
            out, read_1TD = self.run(input_ids=tokens_NT[n : n + 1, seen_T], state=past, use_cache=True)
            room = (0, 0, tokens_NT.shape[1] - out.logits.shape[1], 0)
            logits.append(pad(out.logits, room))
            hidden.append(None if read_1TD is None else pad(read_1TD, room))
            states.append(out.state)
        state.cache = [torch.cat(parts) for parts in zip(*states, strict=True)]
        shown = [it for it in hidden if it is not None]
        return SimpleNamespace(logits=torch.cat(logits)), torch.cat(shown) if shown else None

    def _no_padding(self) -> ValueError:
        return ValueError(
            f"{type(self.model).__name__} does not mask padding, so prompts of unequal lengths cannot share "
            "a batch: say batch_size=1"
        )

    def _no_cache(self) -> ValueError:
        return ValueError(
            f"{type(self.model).__name__} ({self.config.model_type}) returns no cache of what it has read, "
            "which decoding token by token needs: decode it with its own generate"
        )

    @decodes
    def _probe(self) -> tuple[Tensor, Tensor] | None:
        out, hidden_NTD = self.run(input_ids=torch.tensor([[0], [1]], device=self.device), use_cache=False)
        return None if hidden_NTD is None else (out.logits[:, -1], hidden_NTD[:, -1])
