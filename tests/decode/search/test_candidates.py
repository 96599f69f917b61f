import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode import fast_sampling
from unspool.decode.search.candidates import highest, propose


@pytest.fixture(autouse=True, params=["compiled", "torch"], scope="module")
def way(request):
    """Both ways give the same candidates."""
    before, fast_sampling.USE_KERNELS = fast_sampling.USE_KERNELS, request.param == "compiled"
    yield
    fast_sampling.USE_KERNELS = before


def brute(beams, count, scores_NV):
    """Every continuation, sorted by (−sum, hypothesis, token)."""
    found, row = [], 0
    for totals in beams:
        every = [
            (-(total + score), parent, token)
            for parent, total in enumerate(totals)
            for token, score in enumerate(scores_NV[row + parent].tolist())
            if score > -math.inf
        ]
        found.append([(parent, token) for _, parent, token in sorted(every)[:count]])
        row += len(totals)
    return found


def pairs(found):
    return [[(one.parent, one.token) for one in beam] for beam in found]


def test_by_hand():
    scores_NV = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -4.0, -0.25]])
    (beam,) = propose([[-1.0, -2.0]], 4, scores_NV * 2, scores_NV)
    assert [(one.parent, one.token, one.total) for one in beam] == [
        (0, 0, -2.0),
        (1, 2, -2.25),
        (1, 0, -2.5),
        (0, 1, -3.0),
    ]
    assert [one.logp for one in beam] == [-2.0, -0.5, -1.0, -4.0]
    assert [one.score for one in beam] == [-1.0, -0.25, -0.5, -2.0]
    assert [one.key for one in beam] == [one.total for one in beam]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 12), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 10), st.randoms()
)
def test_it_is_the_sorted_list_of_everything_ties_and_cuts_included(V, sizes, count, random):
    # Quarters tie all the time, and their sums are exact.
    beams = [[-random.randrange(9) / 4 for _ in range(size)] for size in sizes]
    steps = [0.0, -0.25, -0.5, -1.0, -2.0, -math.inf]
    scores_NV = torch.tensor([random.choices(steps, k=V) for _ in range(sum(sizes))])
    assert pairs(propose(beams, count, scores_NV, scores_NV)) == brute(beams, count, scores_NV)


@pytest.mark.parametrize("levels", [3, 40, 100_000])
@pytest.mark.parametrize("V", [2577, 700])
def test_a_large_vocabulary_is_searched_by_blocks_to_the_same_end(V, levels):
    torch.manual_seed(V + levels)
    scores_NV = -torch.randint(0, levels, (7, V)) / 8
    beams = [[-1.0, -1.5, -1.5], [0.0], [-3.0, -3.0, -4.0]]
    before = scores_NV.clone()
    assert pairs(propose(beams, 6, scores_NV, scores_NV)) == brute(beams, 6, scores_NV)
    assert torch.equal(before, scores_NV)


def test_a_tie_at_the_edge_is_seen_wherever_it_is():
    V = 1920
    row = torch.full((1, V), -5.0)
    row[0, [3, 1000, V - 1]] = torch.tensor([-1.0, -2.0, -2.0])
    assert highest(row, 2)[1].tolist() == [[3, 1000]]
    assert highest(row, 3)[1].tolist() == [[3, 1000, V - 1]]
    assert highest(torch.full((1, 5), -math.inf), 2)[0].tolist() == [[-math.inf] * 2]


def test_keys_choose_and_scores_add_up():
    scores_NV = torch.tensor([[-1.0, -2.0, -3.0]])
    (beam,) = propose([[-1.0]], 2, scores_NV, scores_NV, keys_NV=torch.tensor([[0.0, 9.0, 8.0]]))
    assert [(one.token, one.total, one.key) for one in beam] == [(1, -3.0, 8.0), (2, -4.0, 7.0)]


def test_the_highest_keys_may_be_moved():
    scores_NV = torch.tensor([[-1.0, -2.0], [-1.0, -2.0]])
    (beam,) = propose(
        [[0.0, 0.0]],
        2,
        scores_NV,
        scores_NV,
        transform_keys=lambda keys_NK: keys_NK - torch.tensor([[9.0], [0.0]]),
    )
    assert [(one.parent, one.token) for one in beam] == [(1, 0), (1, 1)]


def test_the_penalty_of_a_row_comes_with_its_candidates():
    scores_NV = torch.tensor([[-1.0, -9.0], [-2.0, -9.0]])
    (beam,) = propose([[0.0, 0.0]], 2, scores_NV, scores_NV, covered_N=torch.tensor([-0.5, -0.25]))
    assert [one.covered for one in beam] == [-0.5, -0.25]


def test_nan_is_refused_by_name():
    scores_NV = torch.tensor([[-1.0, math.nan, -3.0]])
    with pytest.raises(ValueError, match="token 1 has the score nan"):
        propose([[0.0]], 2, scores_NV, scores_NV)


def test_nan_of_any_hypothesis_is_refused_even_if_others_fill_the_beam():
    scores_NV = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, math.nan, -3.0], [-1.0, -2.0, -3.0]])
    with pytest.raises(ValueError, match="token 1 has the score nan"):
        propose([[0.0, -5.0, 0.0]], 1, scores_NV, scores_NV)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_ranked_by_torch(dtype):
    scores_NV = torch.tensor([[-1.0, -2.0, -3.0]], dtype=dtype)
    (beam,) = propose([[0.0]], 2, scores_NV, scores_NV)
    assert [one.token for one in beam] == [0, 1]
