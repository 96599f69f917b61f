import math

import pytest
import torch

from unspool.nn.positions import RelativePositions


def numbered(heads=1, buckets=8, distance=16, causal=True):
    """Head h has 100 h + n for bucket n."""
    made = RelativePositions(heads, buckets, distance, causal=causal)
    with torch.no_grad():
        made.weight.copy_(torch.arange(buckets)[:, None] + 100.0 * torch.arange(heads))
    return made


def test_near_places_have_buckets_of_their_own_and_far_ones_share():
    # B = 8, M = 16: 4 + ⌊4 · ln(d/4) / ln 4⌋ from distance 4 on
    behind = torch.tensor([0, 1, 2, 3, 4, 5, 6, 8, 11, 12, 16, 999])
    assert numbered().bucket(-behind).tolist() == [0, 1, 2, 3, 4, 4, 5, 6, 6, 7, 7, 7]
    assert numbered().bucket(behind).tolist() == [0] * 12  # nobody looks there


def test_both_directions_have_half_of_the_buckets():
    ahead = torch.tensor([-999, -2, -1, 0, 1, 2, 999])
    assert numbered(causal=False).bucket(ahead).tolist() == [3, 2, 1, 0, 5, 6, 7]


def test_buckets_are_those_of_transformers():
    from transformers.models.t5.modeling_t5 import T5Attention

    ahead = torch.arange(-300, 301)
    for causal in (True, False):
        for buckets, distance in ((32, 128), (8, 20), (4, 9)):
            want = T5Attention._relative_position_bucket(ahead, not causal, buckets, distance)
            assert torch.equal(RelativePositions(1, buckets, distance, causal=causal).bucket(ahead), want)


def test_what_comes_later_is_hidden_from_a_causal_model():
    bias = numbered(heads=2)(0, 3)
    no = -math.inf
    assert bias.tolist() == [
        [[[0, no, no], [1, 0, no], [2, 1, 0]], [[100, no, no], [101, 100, no], [102, 101, 100]]]
    ]


@pytest.mark.parametrize("new", [1, 2, 5])
def test_step_by_step_is_the_same_as_at_once(new):
    torch.manual_seed(0)
    made = RelativePositions(3, 8, 16, causal=True)
    whole = made(0, 20)
    for first in range(0, 20 - new):
        torch.testing.assert_close(made(first, new), whole[:, :, first : first + new, : first + new])
