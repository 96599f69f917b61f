import pytest
import torch

from unspool.models.sources import BoundaryTokens, EncodedSources, pad_rows


class Text:
    bos_id, eos_ids, source = 5, frozenset({7, 9}), None


def test_ends_come_from_the_settings_or_the_text():
    assert BoundaryTokens.of(1, 2, Text, 10) == BoundaryTokens(1, frozenset({2}))
    assert BoundaryTokens.of(None, None, Text, 10) == BoundaryTokens(5, frozenset({7, 9}))
    assert BoundaryTokens.of(None, 2, None, 10) == BoundaryTokens(2, frozenset({2}))


def test_ends_that_nobody_knows_are_refused():
    with pytest.raises(ValueError, match="needs an EOS token"):
        BoundaryTokens.of(1, None, None, 10)
    with pytest.raises(ValueError, match=r"token 9 is outside the vocabulary 0…7"):
        BoundaryTokens.of(None, None, Text, 8)


def test_a_source_ends_with_eos_and_does_not_begin_with_bos():
    ends = BoundaryTokens(5, frozenset({7, 9}))
    assert ends.source([5, 1, 2]) == [1, 2, 7]
    assert ends.source((1, 9)) == [1, 9]
    assert ends.source([5]) == [7]
    assert BoundaryTokens(2, frozenset({2})).source([2]) == [2]
    assert BoundaryTokens(5, frozenset({7}), source_bos=True).source([5, 1, 2]) == [
        5,
        1,
        2,
        7,
    ]  # as BART wants it


def test_sources_that_are_too_long_are_refused_by_number():
    ends = BoundaryTokens(5, frozenset({7}))
    assert ends.sources([[1, 2], [5, 1, 2, 7]], 3) == [[1, 2, 7], [1, 2, 7]]
    assert ends.sources([[1] * 50], None) == [[1] * 50 + [7]]
    with pytest.raises(ValueError, match=r"prompt 1 is a source of 4 tokens, its end .* at most 3"):
        ends.sources([[1], [1, 2, 3]], 3)


def test_rows_are_padded_on_the_right():
    tokens, lengths = pad_rows([[1, 2, 3], [4]], torch.device("cpu"))
    assert tokens.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert lengths.tolist() == [3, 1]


@pytest.fixture
def sources():
    return EncodedSources.of(torch.tensor([10, 11, 12]), None)


@pytest.mark.parametrize(
    ("rows", "used"),
    [
        ([0, 1, 2], [10, 11, 12]),
        ([0, 0, 1, 1, 2, 2], [10, 11, 12]),
        ([0, 2], [10, 12]),
        ([2, 2, 1, 1], [12, 11]),
        ([0, 0, 2], [10, 10, 12]),
        ([0, 1, 0, 1], [10, 11, 10, 11]),
    ],
)
def test_rows_side_by_side_share_their_source(sources, rows, used):
    chosen = sources.select(torch.tensor(rows))
    assert chosen.active[0].tolist() == used
    assert chosen.active[1] is None
    each = len(rows) // len(used)
    assert [used[i // each] for i in range(len(rows))] == [10 + row for row in rows]


def test_nothing_is_copied_where_nothing_has_to_be(sources):
    twice = sources.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    assert twice.active[0] is sources.tensors[0]
    assert twice.select(torch.tensor([1, 1, 3, 2, 4, 5])) is twice


def test_rows_that_were_mixed_can_share_again(sources):
    mixed = sources.select(torch.tensor([0, 1, 2, 0, 1, 2]))
    assert mixed.active[0].tolist() == [10, 11, 12, 10, 11, 12]
    sorted_again = mixed.select(torch.tensor([0, 3, 1, 4, 2, 5]))
    assert sorted_again.active[0] is sources.tensors[0]


class Pair(Text):
    class source:  # noqa: N801
        bos_id, eos_ids, vocab_size = 3, frozenset({4}), 12


def test_sources_may_have_ends_of_their_own():
    assert BoundaryTokens.of_sources(None, None, Pair, 12) == BoundaryTokens(3, frozenset({4}))
    assert BoundaryTokens.of_sources(None, None, Text, None) is None
    assert BoundaryTokens.of_sources(1, 2, None, 12) == BoundaryTokens(1, frozenset({2}))
    with pytest.raises(ValueError, match="give source_vocab_size=12"):
        BoundaryTokens.of_sources(None, None, Pair, None)
    with pytest.raises(
        ValueError, match="separate source vocabulary of 12 tokens, but its tokenizer has none"
    ):
        BoundaryTokens.of_sources(None, None, Text, 12)
