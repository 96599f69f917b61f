from dataclasses import dataclass, replace

import pytest
import torch

from unspool.decode.lockstep import Lockstep, States, check_parts
from unspool.interfaces import Abilities, Step, StepModel
from unspool.testing import TableModel, TableState, random_table


@dataclass(frozen=True)
class Words:
    """A vocabulary of whole words, enough of a Text to be compared."""

    words: tuple[str, ...]

    @property
    def vocab_size(self):
        return len(self.words)

    def encode(self, text):
        return [self.words.index(word) if word in self.words else 0 for word in text.split()]

    def decode(self, ids):
        return " ".join(self.words[token] for token in ids)


@dataclass(frozen=True)
class First(Lockstep):
    """The first part's Step, whatever the others say."""

    models: tuple[StepModel, ...]

    def parts(self):
        return self.models

    def join(self, steps):
        return steps[0]


@dataclass(frozen=True)
class Forward(Abilities):
    """A table model that cannot go back."""

    inner: TableModel
    vocab_size: int = 5
    context: int | None = None
    tokenizer: None = None

    def start(self, prompts):
        return self.inner.start(prompts)

    def step(self, state, tokens_N):
        return self.inner.step(state, tokens_N)


A, B = random_table(5, seed=1), random_table(5, seed=2)


def test_every_part_reads_the_same_rows():
    pair = First((A, B))
    step, state = pair.start([[1, 2], [3]])
    assert state == States((TableState(((1, 2), (3,))), TableState(((1, 2), (3,)))))
    torch.testing.assert_close(step.logp_NV, A.start([[1, 2], [3]])[0].logp_NV)
    state = state.select(torch.tensor([1, 1, 0]))
    _, state = pair.step(state, torch.tensor([4, 0, 2]))
    assert state.parts[0] == state.parts[1] == TableState(((3, 4), (3, 0), (1, 2, 2)))


def test_the_smallest_context_and_the_first_tokenizer_count():
    text = Words(tuple("abcde"))
    assert First((A, B)).context is None
    assert First((A, B)).tokenizer is None
    pair = First((replace(A, context=9), replace(B, context=7, tokenizer=text), A))
    assert (pair.context, pair.tokenizer, pair.vocab_size) == (7, text, 5)


def test_extend_equals_single_steps_and_rewind_undoes_it():
    pair = First((A, B))
    assert pair.rewindable is pair
    _, state = pair.start([[1], [2]])
    tokens_NT = torch.tensor([[1, 2, 3], [4, 0, 1]])
    ahead, state = pair.extend(state, tokens_NT)
    logp_NTV = ahead.logp_NV.view(2, 3, -1)
    assert pair.rewind(state, 2) == States((TableState(((1, 1), (2, 4))),) * 2)
    _, state = pair.start([[1], [2]])
    for t in range(3):
        step, state = pair.step(state, tokens_NT[:, t])
        torch.testing.assert_close(logp_NTV[:, t], step.logp_NV)


def test_one_part_that_cannot_go_back_keeps_the_whole_from_it():
    assert First((A, Forward(B))).rewindable is None
    assert First((Forward(A), B)).rewindable is None


def test_equality_and_repr_are_those_of_the_fields():
    assert First((A, B)) == First((A, B)) != First((B, A))
    assert hash(First((A, B))) == hash(First((A, B)))
    assert repr(First((A,))) == f"First(models=({A!r},))"


def test_vocabularies_of_different_sizes_are_refused():
    with pytest.raises(ValueError, match="model 0 has 5 tokens and model 2 has 6"):
        First((A, B, random_table(6, seed=1)))


def test_a_token_that_means_different_text_is_refused():
    ours = replace(A, tokenizer=Words(("the", "cat", "sat", "on", "it")))
    theirs = replace(B, tokenizer=Words(("the", "dog", "sat", "on", "it")))
    with pytest.raises(ValueError, match="token 1 is 'cat' in model 0 and 'dog' in model 1"):
        First((ours, theirs))
    First((ours, replace(B, tokenizer=Words(ours.tokenizer.words))))


def test_a_special_token_that_one_tokenizer_does_not_show_is_no_difference():
    check_parts(
        [replace(A, tokenizer=Words(("<s>", *"abcd"))), replace(B, tokenizer=Words(("", "a", "b", "c", "d")))]
    )


def test_a_join_sees_the_steps_in_the_order_of_the_parts():
    seen = []

    class Watching(First):
        def join(self, steps: list[Step]):
            seen.append([step.logp_NV for step in steps])
            return steps[-1]

    pair = Watching((A, B))
    step, _ = pair.start([[1]])
    torch.testing.assert_close(seen[0][0], A.start([[1]])[0].logp_NV)
    torch.testing.assert_close(step.logp_NV, B.start([[1]])[0].logp_NV)


@dataclass(frozen=True)
class Translator(Abilities):
    """Enough of an encoder–decoder to be compared."""

    sources: Words
    vocab_size = 3
    context, is_encoder_decoder = None, True
    start = step = None

    @property
    def source_vocab_size(self):
        return self.sources.vocab_size

    @property
    def source_tokenizer(self):
        return self.sources

    @property
    def tokenizer(self):
        return Words(("a", "b", "c"))


def test_vocabularies_of_sources_must_agree_too():
    one = Translator(Words(("x", "y", "z", "w")))
    assert First((one, one)).source_vocab_size == 4
    assert First((one, one)).source_tokenizer is one.sources
    with pytest.raises(ValueError, match="model 0 has 4 source tokens and model 1 has 2"):
        check_parts([one, Translator(Words(("x", "y")))])
    with pytest.raises(ValueError, match="token 3 is 'w' in model 0 and 'v' in model 1"):
        check_parts([one, Translator(Words(("x", "y", "z", "v")))])
