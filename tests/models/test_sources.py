import pytest
import torch

from unspool.models.sources import Ends, Sources, padded


class Text:
    bos_id, eos_ids, source = 5, frozenset({7, 9}), None


def test_ends_come_from_the_settings_or_the_text():
    assert Ends.of(1, 2, Text, 10) == Ends(1, frozenset({2}))
    assert Ends.of(None, None, Text, 10) == Ends(5, frozenset({7, 9}))
    assert Ends.of(None, 2, None, 10) == Ends(2, frozenset({2}))


def test_ends_that_nobody_knows_are_refused():
    with pytest.raises(ValueError, match="must know the token that ends a text"):
        Ends.of(1, None, None, 10)
    with pytest.raises(ValueError, match=r"token 9 is outside the vocabulary 0…7"):
        Ends.of(None, None, Text, 8)


def test_a_source_ends_with_eos_and_does_not_begin_with_bos():
    ends = Ends(5, frozenset({7, 9}))
    assert ends.source([5, 1, 2]) == [1, 2, 7]
    assert ends.source((1, 9)) == [1, 9]
    assert ends.source([5]) == [7]
    assert Ends(2, frozenset({2})).source([2]) == [2]
    assert Ends(5, frozenset({7}), source_bos=True).source([5, 1, 2]) == [5, 1, 2, 7]  # as BART wants it


def test_sources_that_are_too_long_are_refused_by_number():
    ends = Ends(5, frozenset({7}))
    assert ends.sources([[1, 2], [5, 1, 2, 7]], 3) == [[1, 2, 7], [1, 2, 7]]
    assert ends.sources([[1] * 50], None) == [[1] * 50 + [7]]
    with pytest.raises(ValueError, match=r"prompt 1 is a source of 4 tokens, its end .* at most 3"):
        ends.sources([[1], [1, 2, 3]], 3)


def test_rows_are_padded_on_the_right():
    tokens, lengths = padded([[1, 2, 3], [4]], torch.device("cpu"))
    assert tokens.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert lengths.tolist() == [3, 1]


@pytest.fixture
def sources():
    return Sources.of(torch.tensor([10, 11, 12]), None)


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
    assert chosen.used[0].tolist() == used
    assert chosen.used[1] is None
    each = len(rows) // len(used)
    assert [used[i // each] for i in range(len(rows))] == [10 + row for row in rows]


def test_nothing_is_copied_where_nothing_has_to_be(sources):
    twice = sources.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    assert twice.used[0] is sources.kept[0]
    assert twice.select(torch.tensor([1, 1, 3, 2, 4, 5])) is twice


def test_rows_that_were_mixed_can_share_again(sources):
    mixed = sources.select(torch.tensor([0, 1, 2, 0, 1, 2]))
    assert mixed.used[0].tolist() == [10, 11, 12, 10, 11, 12]
    sorted_again = mixed.select(torch.tensor([0, 3, 1, 4, 2, 5]))
    assert sorted_again.used[0] is sources.kept[0]


class Pair(Text):
    class source:  # noqa: N801
        bos_id, eos_ids, vocab_size = 3, frozenset({4}), 12


def test_sources_may_have_ends_of_their_own():
    assert Ends.of_sources(None, None, Pair, 12) == Ends(3, frozenset({4}))
    assert Ends.of_sources(None, None, Text, None) is None
    assert Ends.of_sources(1, 2, None, 12) == Ends(1, frozenset({2}))
    with pytest.raises(ValueError, match="give source_vocab_size=12"):
        Ends.of_sources(None, None, Pair, None)
    with pytest.raises(ValueError, match="12 tokens for sources alone, but its text has no vocabulary"):
        Ends.of_sources(None, None, Text, 12)
