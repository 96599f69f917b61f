"""Models that are decoded token by token, and their heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

if TYPE_CHECKING:
    from torch import Tensor

    from unspool.data.batch import Batch

# What only some models can do. Each ability is an attribute, and None where a model has not got it.
#
#     if model.rewindable is None: …          # say so, or go another way
#     step, state = model.rewindable.extend(state, tokens_NT)
#
# That is the one way to ask (docs/adr/0009): not the class of a model, its settings, or its methods.


class Abilities(Protocol):
    """None of them: a model inherits from this and says what it has."""

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether its prompts are sources: what it says is then a text of its own, not their sequel."""
        return False

    @property
    def eos_ids(self) -> frozenset[int]:
        """The tokens that end a text: the tokenizer's, or else those that the model's settings name."""
        text: TokenizerLike | None = getattr(self, "tokenizer", None)
        return frozenset() if text is None else text.eos_ids

    @property
    def reads_bos(self) -> bool:
        """Whether it reads the BOS that its tokenizer may write first. Masked language models and models that
        choose labels are trained on texts without it."""
        return True

    @property
    def source_vocab_size(self) -> int | None:
        """Tokens of the vocabulary that prompts alone have; None where they share the one of texts."""
        return None

    @property
    def source_tokenizer(self) -> TokenizerLike | None:
        """The tokenizer of prompts, where it is not the one of texts."""
        return None

    def prompts_read(self, prompt: Sequence[int]) -> Sequence[tuple[StepModel, Sequence[int]]]:
        """The models that read something for a prompt, and what each of them reads; none: itself, the prompt.

        Combinations of models and negative prompts fill several contexts at once.
        """
        del prompt
        return ()

    @property
    def output_matrix(self) -> Tensor | None:
        """W, (V, D), where log p = log_softmax(W h) (basis-aware sampling, the bottleneck)."""
        return None

    @property
    def rank_limit(self) -> int | None:
        """What the rank of its log-probabilities over many contexts cannot exceed; None where nothing bounds
        it. By the matrix alone: W h has rank D, and the normalisation adds 1."""
        return None if self.output_matrix is None else self.output_matrix.shape[1] + 1

    @property
    def sense_head(self) -> SenseHead | None:
        """Its head, where words have senses, each with a vector of its own (KerBS)."""
        return None

    @property
    def rewindable(self) -> Rewindable | None:
        """Itself, where it can read several tokens at once and forget them again."""
        return None

    @property
    def prompt_reading(self) -> PromptReading | None:
        """Itself, where it can tell what its head would have read at every place of a prompt."""
        return None

    @property
    def layered(self) -> Layered | None:
        """Itself, where it can tell what its early layers would have said."""
        return None

    @property
    def attention_reading(self) -> AttentionReading | None:
        """Itself, where it can tell where its heads look while it learns from a batch."""
        return None

    @property
    def source_attention_reading(self) -> SourceAttentionReading | None:
        """Itself, where it can tell where its heads look at a source."""
        return None

    @property
    def carrying(self) -> Carrying | None:
        """Itself, where its rows may go on where those of an earlier batch ended."""
        return None

    @property
    def engine(self) -> str | None:
        """What runs its steps, where there is a choice (`models.engine_choice`); it can then be set."""
        return None

    @property
    def infilling(self) -> Infilling | None:
        """Itself, where it says what stands at hidden places of a text, and no token after another
        (mask-predict, masked diffusion)."""
        return None

    @property
    def joining(self) -> Joining | None:
        """What lets the rows of many askers stand in one state (`serve`), where its states can be joined."""
        return None

    @property
    def forking(self) -> Forking | None:
        """What lets a row begin as a part of another one of its state, where its prompts can be read so."""
        return None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """What it chooses from, where it labels texts and says none: target i is labels[i] (`us.predict`)."""
        return None


class SenseHead(Protocol):
    """A head whose words have one or more senses."""

    vocab_size: int
    senses_SD: Any
    """The vector of every sense."""
    theta_S: Any
    """How wide each is."""

    @property
    def words_S(self) -> Tensor:
        """The word of every sense."""
        ...

    @property
    def table(self) -> Any:
        """The senses of every word (`heads.kerbs_kernel.SenseTable`)."""
        ...

    def pop_statistics(self) -> Any:
        """How words and senses were used since the last call (`heads.kerbs.SenseStatistics`)."""
        ...

    def reassign(self, sense: int, word: int, vector_D: Tensor) -> None:
        """Give a sense to another word, with a new vector."""
        ...


class Rewindable(Protocol):
    """Reads several tokens at once and forgets them again (speculative decoding, scoring)."""

    def extend(self, state: Any, tokens_NT: Tensor) -> tuple[Step, Any]:
        """Append T tokens to every row; row n·T + t of the Step is about what follows the t-th of row n."""
        ...

    def rewind(self, state: Any, tokens: int) -> Any:
        """Forget the last `tokens` tokens of every row."""
        ...


class Joining(Protocol):
    """Keeps rows of many askers in one state, which they join and leave; no row's numbers know of the others.

    A row leaves as any row does: by `State.select`.
    """

    def join(self, states: Sequence[Any]) -> Any:
        """The rows of all these states, those of the first one first. None may be used afterwards."""
        ...

    def extend_rows(self, state: Any, rows_M: Tensor, tokens_MT: Tensor) -> tuple[Step, Any]:
        """Append T tokens to some rows, named in the order of the state; the others stay as they are.

        Row m·T + t of the Step is about what follows the t-th token of the m-th of them. Where it fails, the
        state is as it was.
        """
        ...

    def rewind_rows(self, state: Any, rows_M: Tensor, tokens_M: Tensor) -> Any:
        """Forget the last tokens_M[m] tokens of the m-th of these rows."""
        ...


class Forking(Protocol):
    """Lets rows begin where others have been, so that what texts have in common is read once.

    What is said of a row is the same, to the bit, as if it had been read alone from its beginning.
    """

    def fork_rows(self, state: Any, rows_K: Tensor, lengths_K: Tensor) -> Any:
        """New rows behind all others: the k-th is the first lengths_K[k] tokens of row rows_K[k], or none."""
        ...

    def read_rows(self, state: Any, rows_M: Tensor, texts: Sequence[Sequence[int]]) -> tuple[Step, Any]:
        """Append texts of any lengths to some rows, named in the order of the state.

        Row m of the Step is about what follows the m-th text. Where it fails, the state is as it was.
        """
        ...

    def bytes_held(self, state: Any, rows_M: Tensor) -> int:
        """The memory of these rows together; what they share is counted once."""
        ...

    def compact(self, state: Any) -> Any:
        """The same rows, without memory that rows once needed which are gone."""
        ...


class PromptReading(Protocol):
    """Tells what its head would have read at every place of the prompts (contrastive search)."""

    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, Any]:
        """`start`, and before its results the hidden vectors (N, T, D), shorter rows flush right."""
        ...


class Layered(Protocol):
    """Tells what its early layers would have said (contrast of layers, early exits)."""

    @property
    def layers(self) -> int: ...

    def exits(self, layers: Sequence[int]) -> StepModel:
        """The same model, whose Steps carry `exits_NEV` for these layers (1 = after the first block)."""
        ...


class AttentionReading(Protocol):
    """Tells where its heads look (losses on attention, dependency heads)."""

    @property
    def attention_heads(self) -> tuple[tuple[int, int], ...]:
        """How many layers and how many heads in each, of every stack that `read_attention` tells."""
        ...

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        """`hidden_for`, and the self-attention of its encoder and of its decoder, of whichever it has."""
        ...


class SourceAttentionReading(Protocol):
    """Tells where the heads of its decoder look at the source (maps of alignments)."""

    def read_source_attention(self, batch: Batch) -> AttentionStack:
        """α of every layer, (N, H, T, S): from every input to the source, 0 on its padding."""
        ...


class Infilling(Protocol):
    """Says what stands at the hidden places of texts. A hidden place has the id `vocab_size`."""

    def lengths(
        self, prompts: Sequence[Sequence[int]], limits: Sequence[int], most: int
    ) -> list[list[tuple[int, float]]]:
        """For each prompt up to `most` lengths that its text may have, its end included, with their log p."""
        ...

    def fill(self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> list[Tensor]:
        """For each text, some of whose places are hidden, log p of every token at every place: (T, V)."""
        ...

    def whole_texts(self, batch: Batch, room_N: Tensor) -> tuple[Tensor, Tensor]:
        """(N, T) whole texts of a batch to hide places of, and (N) their lengths.

        A model that must find the end of a text by itself reads EOS behind it, as many as `room_N`, random
        numbers of [0, 1), says.
        """
        ...

    def read_hidden(
        self, batch: Batch, stacks: list[AttentionStack] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(N, T, D): what the head reads at every place of texts with hidden places, `batch.inputs_NT`; and
        (N, L), log p of every length, where it predicts one. Where its heads look is appended to `stacks`,
        where there is such a list."""
        ...


class Carrying(Protocol):
    """Reads `Batch.begin_NLS`: what it remembered where the rows that these go on with have ended."""

    def take_end(self) -> Tensor:
        """(N, L, S): what it remembered at the end of the last batch's rows, without gradient."""
        ...


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
    def tokenizer(self) -> TokenizerLike | None:
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


# Text and token ids.


FinishReason = Literal["eos", "length", "stop", "loop"]


class Detokenizer(Protocol):
    """Reads one hypothesis as it grows, and says when its text asks to stop. Immutable: beams fork."""

    @property
    def text(self) -> str:
        """Text that is certain: whole characters, no possible beginning of a stop string."""
        ...

    @property
    def finish_reason(self) -> FinishReason | None: ...

    def push(self, token: int) -> Detokenizer: ...

    def close(self) -> str:
        """The whole text, with what was held back."""
        ...


class TokenizerLike(Protocol):
    """str ↔ token ids."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> frozenset[int]: ...

    @property
    def source(self) -> TokenizerLike | None:
        """The text of sources, where these have a vocabulary of their own."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def show(self, token: int) -> str:
        """One token for people to read: what it adds to a text that has begun, a special one by its name."""
        ...

    def piece(self, token: int, *, first: bool = False) -> bytes | None:
        """What a token adds to a text that has begun (to an empty one: `first`); None for a special one."""
        ...

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Messages as the one string that the model was taught to answer."""
        ...

    def detokenizer(self, stop: Sequence[str] = (), after: int | None = None) -> Detokenizer:
        """A reader of what follows the token `after`: whether a first space is shown may depend on it."""
        ...
