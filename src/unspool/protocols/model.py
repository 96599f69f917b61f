"""Models that are decoded token by token, and their heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from unspool.protocols.abilities import Abilities

if TYPE_CHECKING:
    from torch import Tensor

    from unspool.protocols.text import Text


@dataclass(frozen=True, slots=True)
class Step:
    """What a model says about the next token of every row."""

    logp_NV: Tensor
    hidden_ND: Tensor | None = None
    """What the head read: for searches and picks that look behind the probabilities."""
    attention: Tensor | None = None
    score_NV: Tensor | None = None
    """What a ranking search adds up in place of log p (contrastive decoding's difference)."""
    exits_NEV: Tensor | None = None
    """log p as the chosen early layers would have it, where the model was asked for them."""
    log_norm_N: Tensor | None = None
    """What turns log p into the model's logits again: logit = log p + log_norm; None where it has none."""

    def select(self, rows_M: Tensor) -> Step:
        """The same rows in another order, repeated or dropped."""

        def chosen(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.index_select(0, rows_M)

        return Step(
            self.logp_NV.index_select(0, rows_M),
            chosen(self.hidden_ND),
            chosen(self.attention),
            chosen(self.score_NV),
            chosen(self.exits_NEV),
            chosen(self.log_norm_N),
        )


@dataclass(frozen=True, slots=True)
class AttentionStack:
    """Where the heads of some layers look, one layer above the other."""

    layers: tuple[Tensor, ...]
    """α of each, (N, H, T, T): from a position to all, 0 where it may not look; each row sums to 1."""
    lengths_N: Tensor
    """How many positions of a row are real."""


class State(Protocol):
    """What a model remembers of every row (a key–value cache, an RNN's hidden vectors)."""

    def select(self, rows_M: Tensor) -> Self:
        """Rows reordered, repeated or dropped. The old state may not be used afterwards."""
        ...


class StepModel(Abilities, Protocol):
    """A model that is decoded token by token. A contrast or an ensemble of models is one, too."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def context(self) -> int | None:
        """The most tokens a row may hold, prompt included; None where there is no limit.

        Where the prompt is a source (`answers`), each side has this limit to itself: the source with the EOS
        behind it, and the answer with the BOS in front of it.
        """
        ...

    @property
    def text(self) -> Text | None:
        """The model's tokenizer; None for a model that only speaks token ids."""
        ...

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, Any]:
        """Read the prompts; the Step is about the first new token of each."""
        ...

    def step(self, state: Any, tokens_N: Tensor) -> tuple[Step, Any]:
        """Append one token to every row. The old state may not be used afterwards."""
        ...


class Model(StepModel, Protocol):
    """What `us.load` and `us.train` give: a StepModel that is a torch module.

    Classifiers and taggers, which `us.predict` takes, are no StepModels; a type checker is not told of them.
    """

    config: Any
    head: Any
    training: bool

    def to(self, *args: Any, **kwargs: Any) -> Self: ...

    def eval(self) -> Self: ...

    def train(self, mode: bool = True) -> Self: ...

    def parameters(self, recurse: bool = True) -> Iterator[Any]: ...

    def state_dict(self) -> Mapping[str, Any]: ...


class Head(Protocol):
    """Hidden vectors to normalised log-probabilities: (…, D) → (…, V)."""

    logits: Callable[[Tensor], Tensor] | None
    """What the log-probabilities are a log_softmax of; None where they are none (a mixture)."""

    @property
    def weight(self) -> Tensor | None:
        """The matrix (V, D) whose products with the hidden vector the logits are, but for a bias, or None."""
        ...

    @property
    def rank_limit(self) -> int | None:
        """What the rank of its log-probabilities over many contexts cannot exceed; None without a matrix."""
        ...

    def __call__(self, hidden: Tensor) -> Tensor: ...
