import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.transforms.scores import HEAD, ascending, edges, first, rounding


def plain_first(key_NV, count_N):
    """The first count tokens by key, the lower id first among equals: by a stable sort."""
    token_NV = key_NV.sort(dim=-1, descending=True, stable=True).indices
    rank_NV = torch.empty_like(token_NV).scatter(
        1, token_NV, torch.arange(key_NV.shape[1]).expand_as(token_NV)
    )
    return rank_NV < count_N[:, None]


def test_first_by_hand():
    key = torch.tensor([[3.0, 1.0, 3.0, 2.0, 2.0]])
    for count, kept in ((1, [0]), (2, [0, 2]), (3, [0, 2, 3]), (4, [0, 2, 3, 4]), (5, [0, 1, 2, 3, 4])):
        edge = key.sort(descending=True).values[:, count - 1 : count]
        assert first(key, edge, torch.tensor([count]))[0].nonzero()[:, 0].tolist() == kept


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=4), st.data())
def test_first_is_the_stable_sort_with_any_ties(rows, data):
    key = torch.tensor(rows, dtype=torch.float32)
    count = torch.tensor([data.draw(st.integers(1, 6)) for _ in rows])
    edge = key.sort(descending=True).values.gather(1, count[:, None] - 1)
    assert torch.equal(first(key, edge, count), plain_first(key, count))


def test_edges_ask_for_the_whole_row_only_where_the_head_does_not_decide():
    key = torch.arange(3 * 1000, dtype=torch.float32).view(3, 1000)
    asked = []

    def head(key_NK, token_NK):
        assert key_NK.shape == (3, HEAD)
        assert torch.equal(key.gather(1, token_NK), key_NK)
        return torch.tensor([5, 0, 256])

    def whole(rows_R):
        asked.append(rows_R.tolist())
        return key[rows_R, -700][:, None], torch.tensor([700])

    edge, count = edges(key, head, whole)
    assert asked == [[1]]
    assert count.tolist() == [5, 700, 256]
    assert edge[:, 0].tolist() == [995.0, 1300.0, 2744.0]


def test_edges_of_a_small_vocabulary_never_ask_for_a_head():
    def whole(rows_R):
        return torch.zeros(len(rows_R), 1), torch.ones(len(rows_R), dtype=torch.long)

    assert edges(torch.zeros(2, 2 * HEAD), pytest.fail, whole)[1].tolist() == [1, 1]


def test_ascending_sorts_every_row(matrices):
    for scores in matrices.values():
        assert torch.equal(ascending(scores), scores.sort(dim=-1).values)


def test_rounding_covers_the_errors_of_float32(matrices):
    for name in ("5000 ties", "50000 plain", "50000 ties", "200000 ties"):
        scores = matrices[name]
        for ordered in (scores, ascending(scores), ascending(scores).flip(-1)):
            error = (ordered.softmax(dim=-1).double().sum(dim=-1) - 1).abs().max()
            assert 2 * error <= rounding(scores.shape[1])
