"""What only some models can do. Each ability is an attribute, and None where a model has not got it.

    if model.rewindable is None: …          # say so, or go another way
    step, state = model.rewindable.extend(state, tokens_NT)

That is the one way to ask (docs/adr/0009): not the class of a model, its settings, or its methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from unspool.data.batch import Batch
    from unspool.protocols.model import AttentionStack, Step, StepModel
    from unspool.protocols.text import Text


class Abilities(Protocol):
    """None of them: a model inherits from this and says what it has."""

    @property
    def answers(self) -> bool:
        """Whether its prompts are sources: what it says is then a text of its own, not their sequel."""
        return False

    @property
    def eos_ids(self) -> frozenset[int]:
        """The tokens that end a text: the tokenizer's, or else those that the model's settings name."""
        text: Text | None = getattr(self, "text", None)
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
    def source_text(self) -> Text | None:
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
        """The senses of every word (`heads.sense_table`)."""
        ...

    def take_seen(self) -> Any:
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
