"""Base classes of sequence models: language models and encoder–decoders, and their inference mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from unspool.engine.engine_choice import (
    EngineName,
    KVCacheFormat,
    ModuleSpec,
    choose_engine,
    parse_engine,
    parse_kv_cache,
    stored_shape,
)
from unspool.heads import resolve_head
from unspool.heads.kerbs import Kerbs
from unspool.interfaces import Abilities, TokenizerLike
from unspool.models.model_config import check_build_arguments
from unspool.models.sources import BoundaryTokens
from unspool.tokenization import Tokenizer


def unit_embedding(vocab_size: int, width: int) -> nn.Embedding:
    """A random embedding with vectors of norm about 1."""
    embed = nn.Embedding(vocab_size, width)
    nn.init.normal_(embed.weight, std=width**-0.5)
    return embed


class SequenceModel(nn.Module, Abilities):
    """Base class; a subclass sets `embed` and `head`."""

    config: Any
    embed: nn.Embedding
    head: Any

    def __init__(self, config: Any, kind: type, tokenizer: TokenizerLike | None) -> None:
        super().__init__()
        check_build_arguments(config, kind, tokenizer)
        self.config = config
        self.tokenizer = tokenizer
        self.config_eos_ids: frozenset[int] = frozenset()
        """EOS tokens from the model's files, used without a tokenizer."""
        self.built: ModuleSpec = {}
        """The parts that the compiled engine needs (`engine.engine_choice`), or empty."""
        self._forced_engine: EngineName | None = None
        self._kv_cache: KVCacheFormat | None = None

    def __repr__(self) -> str:
        weights = sum(weight.numel() for weight in self.parameters())
        stored = sum(rows * columns for rows, columns in map(stored_shape, self.modules()))
        context = getattr(self, "context", None)
        limit = "" if context is None else f"context {context}, "
        engine = self._forced_engine or choose_engine(self, None)
        return f"{type(self).__name__}({weights + stored:,} parameters, {limit}engine {engine!r})"

    def new_head(self, tied: bool) -> Any:
        """Build the head of the settings; `tied` is its default."""
        c = self.config
        return resolve_head(c.head, tied).build(c.width, c.vocab_size, self.embed)

    @property
    def engine(self) -> EngineName:
        """The engine of the next text: "torch" or "compiled" (`engine.engine_choice`).

        Set it to force one; None restores the automatic choice.
        """
        return choose_engine(self, self._forced_engine)

    @engine.setter
    def engine(self, name: str | None) -> None:
        engine = parse_engine(name)
        # Conditions that may change, such as the dtype, are checked when a text begins.
        if engine == "compiled" and not self.built:
            choose_engine(self, engine)
        self._forced_engine = engine

    @property
    def kv_cache(self) -> KVCacheFormat | None:
        """The format of the compiled engine's KV cache in the next text: "float32" or "float16".

        None: float16 if some weights are stored, else float32.
        """
        return self._kv_cache

    @kv_cache.setter
    def kv_cache(self, name: str | None) -> None:
        self._kv_cache = parse_kv_cache(name)

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def eos_ids(self) -> frozenset[int]:
        return self.config_eos_ids if self.tokenizer is None else self.tokenizer.eos_ids

    @property
    def output_matrix(self) -> Tensor | None:
        return self.head.weight

    @property
    def rank_limit(self) -> int | None:
        return self.head.rank_limit

    @property
    def sense_head(self) -> Kerbs | None:
        return self.head if isinstance(self.head, Kerbs) else None

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


class LanguageModel(SequenceModel):
    """Base class of decoder-only models; a subclass defines `hidden`, the input of the head."""

    def hidden(self, tokens_NT: Tensor) -> Tensor:
        """(N, T) → (N, T, D)."""
        raise NotImplementedError

    def forward(self, tokens_NT: Tensor) -> Tensor:
        """(N, T) → (N, T, V): log p of every next token after each prefix, in one parallel pass."""
        return self.head(self.hidden(tokens_NT))


class EncoderDecoder(SequenceModel):
    """Base class of encoder–decoders: prompts are sources, optionally with a separate vocabulary."""

    is_encoder_decoder = True

    def __init__(self, config: Any, kind: type, tokenizer: TokenizerLike | None) -> None:
        super().__init__(config, kind, tokenizer)
        self.ends = BoundaryTokens.of(config.bos, config.eos, tokenizer, config.vocab_size)
        source_boundaries = BoundaryTokens.of_sources(
            config.bos, config.eos, tokenizer, config.source_vocab_size
        )
        self.source_ends = source_boundaries or self.ends
        self.config_eos_ids = self.ends.eos

    @property
    def source_vocab_size(self) -> int | None:
        return self.config.source_vocab_size

    @property
    def source_tokenizer(self) -> TokenizerLike | None:
        """The tokenizer of sources if it differs: separate vocabulary, or right-to-left targets."""
        if self.tokenizer is None:
            return None
        if self.source_vocab_size is None:
            return (
                self.tokenizer.source_tokenizer
                if isinstance(self.tokenizer, Tokenizer) and self.tokenizer.right_to_left
                else None
            )
        return self.tokenizer.source


M = TypeVar("M", bound=nn.Module)
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def eval_inference(model: nn.Module) -> Iterator[None]:
    """Disable gradients and dropout inside the block, then restore the mode of every module.

    If the model is in eval mode, modules that were set to train mode separately stay in it (Monte Carlo
    dropout).
    """
    training_modules = [part for part in model.modules() if part.training] if model.training else []
    for part in training_modules:
        part.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for part in training_modules:
            part.training = True


def inference_method(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """Decorator: run a method of a model inside `eval_inference`."""
    fast_method = torch.inference_mode()(method)

    @wraps(method)
    def run(model: M, /, *args: P.args, **named: P.kwargs) -> R:
        if not model.training:  # the common, fast path
            return fast_method(model, *args, **named)
        with eval_inference(model):
            return method(model, *args, **named)

    return run
