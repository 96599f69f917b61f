import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.heads.kerbs_kernel import SenseTable


def test_by_hand():
    """Word 0 has senses 1 and 3, word 1 has 0, word 2 has 2."""
    table = SenseTable.of(torch.tensor([1, 0, 2, 0]), 3)
    assert table.senses_VJ.tolist() == [[1, 3], [0, 0], [2, 2]]
    assert table.real_VJ.tolist() == [[True, True], [True, False], [True, False]]
    scores = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log()
    assert table.by_word(scores).exp()[0].tolist() == pytest.approx([0.6, 0.1, 0.3])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 99), st.floats(0.1, 300))
def test_sums_are_those_of_a_loop_over_words(extra, seed, spread):
    dice = torch.Generator().manual_seed(seed)
    words = torch.tensor([0, 1, 2, 3, 4, *extra])[torch.randperm(5 + len(extra), generator=dice)]
    scores = spread * torch.randn(2, 3, len(words), generator=dice, dtype=torch.float64)
    looped = torch.stack([scores[..., words == word].logsumexp(-1) for word in range(5)], -1)
    torch.testing.assert_close(SenseTable.of(words, 5).by_word(scores), looped)


def test_one_sense_each_is_left_alone_only_in_order():
    scores = torch.tensor([5.0, 6.0, 7.0])
    assert SenseTable.of(torch.tensor([0, 1, 2]), 3).by_word(scores) is scores
    assert SenseTable.of(torch.tensor([2, 0, 1]), 3).by_word(scores).tolist() == [6.0, 7.0, 5.0]


def test_put_in_order_the_senses_of_a_rank_lie_side_by_side():
    """Word 2 has three senses, word 0 two, word 1 one."""
    table = SenseTable.of(torch.tensor([2, 0, 1, 2, 0, 2]), 3)
    assert table.order_S.tolist() == [0, 1, 2, 3, 4, 5]
    assert table.ranks == (slice(0, 3), slice(3, 5), slice(5, 6))
    assert list(table.blocks()) == [
        (slice(0, 2), slice(2)),
        (slice(3, 5), slice(2)),
        (slice(5, 6), slice(1)),
    ]
    scores = torch.tensor([[1.0, 2.0, 3.0, 10.0, 20.0, 100.0]])
    assert table.folded(scores, torch.add).tolist() == [[111.0, 22.0]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 99))
def test_sums_of_senses_put_in_order_are_those_of_the_words_with_several(extra, seed):
    dice = torch.Generator().manual_seed(seed)
    words = torch.tensor([0, 1, 2, 3, 4, *extra])[torch.randperm(5 + len(extra), generator=dice)]
    table, scores = SenseTable.of(words, 5), torch.randn(3, len(words), generator=dice)
    assert torch.equal(table.order_S[table.places_S], torch.arange(len(words)))
    ordered = scores[:, table.order_S]
    counts = torch.bincount(words, minlength=5)
    several = [word for word in counts.argsort(descending=True, stable=True).tolist() if counts[word] > 1]
    assert table.several == len(several)
    looped = [scores[:, words == word].logsumexp(-1) for word in several]
    torch.testing.assert_close(
        table.folded(ordered, torch.logaddexp), torch.stack(looped, -1) if looped else ordered[:, :0]
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([0, 2], "1 of 3 words have no sense, the first of them word 1"),
        ([0, 1, 2, 3], "belongs to word 3, but there are 3 words: name words from 0 to 2"),
    ],
)
def test_a_word_without_a_sense_or_an_unknown_word_is_refused(words, message):
    with pytest.raises(ValueError, match=message):
        SenseTable.of(torch.tensor(words), 3)
