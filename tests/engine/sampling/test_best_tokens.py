import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.engine.best_tokens import WORTH_SHARING, best_tokens
from unspool.engine.simd import WIDTH


def test_by_hand():
    scores_NV = torch.tensor([[-3.0, -1.0, -2.0, -1.0], [-4.0, -math.inf, -0.5, -math.inf]])
    values_NK, tokens_NK = best_tokens(scores_NV, 3)
    assert values_NK.tolist() == [[-1.0, -1.0, -2.0], [-0.5, -4.0, -math.inf]]
    assert tokens_NK.tolist() == [[1, 3, 2], [2, 0, 0]]


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 3), st.integers(1, 5 * WIDTH + 3), st.integers(1, 40), st.randoms())
def test_best_tokens_are_the_head_of_the_stably_sorted_row(N, V, k, random):
    steps = [0.0, -0.25, -0.5, -1.0, -2.0, -3e38, -math.inf]  # they tie all the time
    scores_NV = torch.tensor([random.choices(steps, k=V) for _ in range(N)])
    before = scores_NV.clone()
    values_NK, tokens_NK = best_tokens(scores_NV, min(k, V))
    want_NV, order_NV = scores_NV.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(values_NK, want_NV[:, : values_NK.shape[1]])
    there = values_NK > -math.inf
    assert torch.equal(tokens_NK[there], order_NV[:, : values_NK.shape[1]][there])
    assert torch.equal(scores_NV, before)


@pytest.mark.parametrize("place", [0, WIDTH, 2 * WIDTH + 1])
def test_nan_is_detected_anywhere(place):
    scores_NV = torch.zeros(2, 2 * WIDTH + 2)
    scores_NV[1, place] = math.nan
    assert best_tokens(scores_NV, 2) is None


def test_threads_and_other_layouts_change_nothing(monkeypatch):
    torch.manual_seed(0)
    scores_VN = torch.randn(WORTH_SHARING // 8 + 5, 9)
    alone = [best_tokens(row[None], 5) for row in scores_VN.T.contiguous()]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    values_NK, tokens_NK = best_tokens(scores_VN.T, 5)
    assert torch.equal(values_NK, torch.cat([values for values, _ in alone]))
    assert torch.equal(tokens_NK, torch.cat([tokens for _, tokens in alone]))
