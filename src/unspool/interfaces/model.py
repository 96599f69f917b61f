"""Interfaces of models: step-by-step decoding, optional abilities, heads and tokenizers.

An optional ability is an attribute that is None if a model does not have it (docs/adr/0009):

    if model.rewindable is None: …          # refuse, or use another algorithm
    step, state = model.rewindable.extend(state, tokens_NT)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

if TYPE_CHECKING:
    from torch import Tensor

    from unspool.data.batch import Batch
    from unspool.heads.kerbs import Kerbs


@dataclass(frozen=True, slots=True)
class Step:
    """The prediction of the next token of every row."""

    logp_NV: Tensor
    hidden_ND: Tensor | None = None
    """The hidden state that the head read."""
    attention: Tensor | None = None
    score_NV: Tensor | None = None
    """The score that beam search sums instead of log p (the difference of contrastive decoding)."""
    exits_NEV: Tensor | None = None
    """log p of the chosen early layers (`Layered.exits`)."""
    log_norm_N: Tensor | None = None
    """Log-normaliser: logit = log p + log_norm; None if the model has no logits."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Step:
        """Change every tensor."""
        parts = (self.hidden_ND, self.attention, self.score_NV, self.exits_NEV, self.log_norm_N)
        return Step(change(self.logp_NV), *(None if part is None else change(part) for part in parts))

    @classmethod
    def merge(cls, steps: Sequence[Step], join: Callable[[list[Tensor]], Tensor]) -> Step:
        """Join the tensors of several Steps; one that is missing in any of them is left out."""
        if len(steps) == 1:
            return steps[0]
        parts = ([getattr(step, name) for step in steps] for name in cls.__slots__)
        return cls(*(None if any(part is None for part in own) else join(own) for own in parts))  # type: ignore[arg-type]

    def select(self, rows_M: Tensor) -> Step:
        """Reorder, repeat or drop rows."""
        return self.map(lambda part: part.index_select(0, rows_M))


class State(Protocol):
    """The state of every row (a KV cache, the hidden states of an RNN)."""

    def select(self, rows_M: Tensor) -> Self:
        """Reorder, repeat or drop rows. The old state may not be used afterwards."""


class TextAbilities(Protocol):
    """Properties of the prompts and texts of a model."""

    @property
    def is_encoder_decoder(self) -> bool:
        """True if its prompts are sources, and its text is a target instead of a continuation."""
        return False

    @property
    def eos_ids(self) -> frozenset[int]:
        """The end-of-text tokens: the tokenizer's, or those in the model's settings."""
        tokenizer: TokenizerLike | None = getattr(self, "tokenizer", None)
        return frozenset() if tokenizer is None else tokenizer.eos_ids

    @property
    def reads_bos(self) -> bool:
        """True if it reads the BOS of its tokenizer; masked models, classifiers and taggers do not."""
        return True

    @property
    def source_vocab_size(self) -> int | None:
        """Size of a separate vocabulary of prompts; None if prompts and texts share one."""
        return None

    @property
    def source_tokenizer(self) -> TokenizerLike | None:
        """A separate tokenizer of prompts; None if prompts and texts share one."""
        return None

    def prompts_read(self, prompt: Sequence[int]) -> Sequence[tuple[StepModel, Sequence[int]]]:
        """The models that read something for a prompt, with their prompts; empty: this model, this prompt.

        Combined models and negative prompts fill several contexts at once.
        """
        del prompt
        return ()

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The labels of a classifier or tagger: target i is labels[i] (`us.predict`)."""
        return None


class DecodingAbilities(Protocol):
    """Operations on states that some decoders and the server need."""

    @property
    def engine(self) -> str | None:
        """The engine of its steps, "torch" or "compiled", if there is a choice; it can then be set."""
        return None

    @property
    def rewindable(self) -> Rewindable | None:
        return None

    @property
    def prompt_reading(self) -> PromptReading | None:
        return None

    @property
    def joining(self) -> Joining | None:
        return None

    @property
    def forking(self) -> Forking | None:
        return None

    @property
    def infilling(self) -> Infilling | None:
        return None


class InspectionAbilities(Protocol):
    """Access to the inside of a model, for training, diagnosis and basis-aware sampling."""

    @property
    def output_matrix(self) -> Tensor | None:
        """W, (V, D), if log p = log_softmax(W h)."""
        return None

    @property
    def rank_limit(self) -> int | None:
        """Upper bound of the rank of its log-probabilities: D for W h, and 1 for the normalisation."""
        return None if self.output_matrix is None else self.output_matrix.shape[1] + 1

    @property
    def sense_head(self) -> Kerbs | None:
        """Its head, if words have several sense vectors (KerBS)."""
        return None

    @property
    def layered(self) -> Layered | None:
        return None

    @property
    def attention_reading(self) -> AttentionReading | None:
        return None

    @property
    def source_attention_reading(self) -> SourceAttentionReading | None:
        return None


class Abilities(TextAbilities, DecodingAbilities, InspectionAbilities, Protocol):
    """All optional abilities, none of them present: a model inherits from this and overrides what it has."""


class Rewindable(Protocol):
    """Reads several tokens at once, and removes them again (speculative decoding, scoring)."""

    def extend(self, state: Any, tokens_NT: Tensor) -> tuple[Step, Any]:
        """Append T tokens to every row; row n·T + t of the Step predicts what follows token t of row n."""

    def rewind(self, state: Any, tokens: int) -> Any:
        """Remove the last `tokens` tokens of every row."""


class Joining(Protocol):
    """Keeps the rows of many requests in one state (continuous batching). Rows do not influence each other.

    `State.select` removes rows.
    """

    def join(self, states: Sequence[Any]) -> Any:
        """Concatenate the rows of states. The old states may not be used afterwards."""

    def extend_rows(self, state: Any, rows_M: Tensor, tokens_MT: Tensor) -> tuple[Step, Any]:
        """Append T tokens to some rows, in the order of the state; the others do not change.

        Row m·T + t of the Step predicts what follows token t of the m-th row. If it fails, the state does not
        change.
        """

    def rewind_rows(self, state: Any, rows_M: Tensor, tokens_M: Tensor) -> Any:
        """Remove the last tokens_M[m] tokens of the m-th of these rows."""


class Forking(Protocol):
    """Starts rows as copies of prefixes of others, so that a shared prefix is read once (prefix cache).

    The results of a row are those of reading it alone, bit-identical with the compiled engine.
    """

    def fork_rows(self, state: Any, rows_K: Tensor, lengths_K: Tensor) -> Any:
        """Add rows after all others: the k-th is the first lengths_K[k] tokens of row rows_K[k]."""

    def read_rows(self, state: Any, rows_M: Tensor, texts: Sequence[Sequence[int]]) -> tuple[Step, Any]:
        """Append texts of any lengths to some rows, in the order of the state.

        Row m of the Step predicts what follows the m-th text. If it fails, the state does not change.
        """

    def bytes_held(self, state: Any, rows_M: Tensor) -> int:
        """Memory of these rows; shared parts count once."""

    def compact(self, state: Any) -> Any:
        """Free the memory of removed rows."""


class PromptReading(Protocol):
    """Returns the hidden states of all prompt positions (contrastive search)."""

    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, Any]:
        """The hidden states (M, D) of the tokens of all prompts, in order, and the results of `start`."""


class Layered(Protocol):
    """Returns the predictions of early layers (contrast of layers, early exits)."""

    @property
    def layers(self) -> int: ...

    def exits(self, layers: Sequence[int]) -> StepModel:
        """This model, with Steps that contain `exits_NEV` for these layers (1 = after the first block)."""


class AttentionReading(Protocol):
    """Returns its self-attention (losses on attention, dependency heads)."""

    @property
    def attention_heads(self) -> tuple[tuple[int, int], ...]:
        """Number of layers and heads of every stack that `read_attention` returns."""

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        """`hidden_for`, and the self-attention of its encoder and decoder, if it has them."""


class SourceAttentionReading(Protocol):
    """Returns the attention of its decoder on the source (alignments)."""

    def read_source_attention(self, batch: Batch) -> AttentionStack:
        """α of every layer, (N, H, T, S): from every input to the source, 0 at padding."""


class Infilling(Protocol):
    """Predicts the tokens at masked positions, which have the id `vocab_size` (mask-predict, diffusion)."""

    def lengths(
        self, prompts: Sequence[Sequence[int]], limits: Sequence[int], most: int
    ) -> list[list[tuple[int, float]]]:
        """For each prompt, up to `most` lengths of its text, end token included, with their log p."""

    def fill(self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> list[Tensor]:
        """For each text with masked positions, log p of every token at every position: (T, V)."""

    def whole_texts(self, batch: Batch, room_N: Tensor) -> tuple[Tensor, Tensor]:
        """(N, T) texts of a batch to be masked, and (N) their lengths.

        For a model without a length prediction, EOS tokens follow a text; their number is drawn with
        `room_N`, uniform numbers of [0, 1).
        """

    def read_hidden(
        self, batch: Batch, stacks: list[AttentionStack] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(N, T, D), the hidden states of masked texts, `batch.inputs_NT`; and (N, L), log p of every length,
        or None. The attention is appended to `stacks` if it is given."""


@dataclass(frozen=True, slots=True)
class AttentionStack:
    """The attention of the heads of a stack of layers."""

    layers: tuple[Tensor, ...]
    """α of each layer, (N, H, T, T): from a position to all, 0 at masked ones; each row sums to 1."""
    lengths_N: Tensor
    """Length of every row without padding."""


class StepModel(Abilities, Protocol):
    """A model that is decoded token by token; contrasts and ensembles of models are StepModels, too."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def context(self) -> int | None:
        """Maximum number of tokens of a row, prompt included; None if it is unlimited.

        For an encoder–decoder, source (with EOS) and target (with BOS) each have this limit.
        """

    @property
    def tokenizer(self) -> TokenizerLike | None:
        """The tokenizer; None if the model only works with token ids."""

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, Any]:
        """Read the prompts; the Step predicts the first new token of each."""

    def step(self, state: Any, tokens_N: Tensor) -> tuple[Step, Any]:
        """Append one token to every row. The old state may not be used afterwards."""


class Model(StepModel, Protocol):
    """The type that `us.load` and `us.train` return: a StepModel that is a torch module.

    Classifiers and taggers (`us.predict`) are not StepModels; this type ignores them.
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
    """The logits; None if the log-probabilities are not a log_softmax (a mixture)."""

    @property
    def weight(self) -> Tensor | None:
        """The matrix (V, D) of the logits, W h + bias, or None."""

    @property
    def rank_limit(self) -> int | None:
        """Upper bound of the rank of its log-probabilities over many contexts; None without a matrix."""

    def __call__(self, hidden: Tensor) -> Tensor: ...


FinishReason = Literal["eos", "length", "stop", "loop"]


class Detokenizer(Protocol):
    """Incremental detokenizer of one hypothesis, with stop strings. Immutable, because beams fork."""

    @property
    def text(self) -> str:
        """The final text so far: complete characters, without a possible prefix of a stop string."""

    @property
    def finish_reason(self) -> FinishReason | None: ...

    def push(self, token: int) -> Detokenizer: ...

    def close(self) -> str:
        """The whole text, including what was held back."""


class TokenizerLike(Protocol):
    """Converts strings to token ids and back."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> frozenset[int]: ...

    @property
    def source(self) -> TokenizerLike | None:
        """The tokenizer of sources if they have a separate vocabulary."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def show(self, token: int) -> str:
        """One token in readable form: what it adds to a text, or the name of a special token."""

    def piece(self, token: int, *, first: bool = False) -> bytes | None:
        """The bytes that a token adds to a text (to an empty one if `first`); None for a special token."""

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Apply the chat template to messages."""

    def detokenizer(self, stop: Sequence[str] = (), after: int | None = None) -> Detokenizer:
        """A detokenizer for text after the token `after`, which decides whether a first space is shown."""
