"""What every model that says sequences is made of: an embedding of its tokens, and a head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from unspool.engine.engine_choice import EngineName, ModuleSpec, choose_engine, parse_engine, stored_shape
from unspool.heads import resolve_head
from unspool.heads.kerbs import Kerbs
from unspool.interfaces import Abilities
from unspool.models.model_config import given
from unspool.models.sources import Ends
from unspool.tokenization import Tokenizer

if TYPE_CHECKING:
    from unspool.interfaces import TokenizerLike


def unit_embedding(vocab_size: int, width: int) -> nn.Embedding:
    """Random vectors that are about as long as a unit vector."""
    embed = nn.Embedding(vocab_size, width)
    nn.init.normal_(embed.weight, std=width**-0.5)
    return embed


class SequenceModel(nn.Module, Abilities):
    """A subclass gives itself `embed` and `head`."""

    config: Any
    embed: nn.Embedding
    head: Any

    def __init__(self, config: Any, kind: type, text: TokenizerLike | None) -> None:
        super().__init__()
        given(config, kind, text)
        self.config = config
        self.tokenizer = text
        self.config_eos_ids: frozenset[int] = frozenset()
        """End-of-text tokens that the model's files name, for a model without a tokenizer."""
        self.built: ModuleSpec = {}
        """What it was made of, where its steps can be compiled (`engine.engine_choice`)."""
        self._forced_engine: EngineName | None = None

    def __repr__(self) -> str:
        weights = sum(weight.numel() for weight in self.parameters())
        stored = sum(rows * columns for rows, columns in map(stored_shape, self.modules()))
        context = getattr(self, "context", None)
        limit = "" if context is None else f"context {context}, "
        engine = self._forced_engine or choose_engine(self, None)
        return f"{type(self).__name__}({weights + stored:,} parameters, {limit}engine {engine!r})"

    def new_head(self, tied: bool) -> Any:
        """The head that its settings ask for; tied to the embedding, or not, where these do not say."""
        c = self.config
        return resolve_head(c.head, tied).build(c.width, c.vocab_size, self.embed)

    @property
    def engine(self) -> EngineName:
        """What runs the steps of a text that begins now: "torch" or "compiled" (`engine.engine_choice`).

        It is set to force one of them; None leaves the choice to the model again.
        """
        return choose_engine(self, self._forced_engine)

    @engine.setter
    def engine(self, name: str | None) -> None:
        engine = parse_engine(name)
        if (
            engine == "compiled" and not self.built
        ):  # what may change, such as a dtype, is asked when a text begins
            choose_engine(self, engine)
        self._forced_engine = engine

    @property
    def vocab_size(self) -> int:
        """Width of the output: token ids go from 0 to vocab_size − 1."""
        size: int = self.config.vocab_size
        return size

    @property
    def eos_ids(self) -> frozenset[int]:
        """The tokenizer's, or else the ones that the model's files name."""
        return self.config_eos_ids if self.tokenizer is None else self.tokenizer.eos_ids

    @property
    def output_matrix(self) -> Tensor | None:
        """(V, D): log p = log_softmax of its products with the hidden vector; None: the head has none."""
        weight: Tensor | None = self.head.weight
        return weight

    @property
    def rank_limit(self) -> int | None:
        """The head's."""
        limit: int | None = self.head.rank_limit
        return limit

    @property
    def sense_head(self) -> Kerbs | None:
        """Its head, where that is KerBS."""
        return self.head if isinstance(self.head, Kerbs) else None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device


class LanguageModel(SequenceModel):
    """A model that continues texts. A subclass says what its head reads at every position: `hidden`."""

    def hidden(self, tokens_NT: Tensor) -> Tensor:
        """(N, T) → (N, T, D)."""
        raise NotImplementedError

    def forward(self, tokens_NT: Tensor) -> Tensor:
        """(N, T) → (N, T, V): log p of every next token after each prefix, in one parallel pass."""
        logp: Tensor = self.head(self.hidden(tokens_NT))
        return logp


class EncoderDecoder(SequenceModel):
    """A model whose prompts are sources, with a vocabulary of their own where its settings say so."""

    def __init__(self, config: Any, kind: type, text: TokenizerLike | None) -> None:
        super().__init__(config, kind, text)
        self.ends = Ends.of(config.bos, config.eos, text, config.vocab_size)
        apart = Ends.of_sources(config.bos, config.eos, text, config.source_vocab_size)
        self.source_ends = apart or self.ends
        self.config_eos_ids = self.ends.eos

    @property
    def is_encoder_decoder(self) -> bool:
        """Its prompt is a source."""
        return True

    @property
    def source_vocab_size(self) -> int | None:
        """Tokens of sources, where these have a vocabulary of their own."""
        size: int | None = self.config.source_vocab_size
        return size

    @property
    def source_tokenizer(self) -> TokenizerLike | None:
        """Their tokenizer, in that case, or where texts are said from right to left, and sources are not."""
        if self.tokenizer is None:
            return None
        if self.source_vocab_size is None:
            return (
                self.tokenizer.source_tokenizer
                if isinstance(self.tokenizer, Tokenizer) and self.tokenizer.right_to_left
                else None
            )
        return self.tokenizer.source


# How a model is run while it decodes: without gradients and without dropout, whatever mode it is in.
#
# A model that is being trained may be asked for text between two updates; it is in train mode again
# afterwards. Where a model is in eval mode and one of its parts alone was put into train mode, that part
# stays in it: whoever does so (for Monte Carlo dropout) means it.


M = TypeVar("M", bound=nn.Module)
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def decoding(model: nn.Module) -> Iterator[None]:
    """Neither gradients nor dropout inside the block; every part is in its own mode again behind it."""
    learning = [part for part in model.modules() if part.training] if model.training else []
    for part in learning:
        part.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for part in learning:
            part.training = True


def decodes(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """A method of a model that runs inside `decoding`."""
    quiet = torch.inference_mode()(method)

    @wraps(method)
    def run(model: M, /, *args: P.args, **named: P.kwargs) -> R:
        if not model.training:  # as a rule, and a step of a small model is a short time
            return quiet(model, *args, **named)
        with decoding(model):
            return method(model, *args, **named)

    return run
