import math

import pytest
import torch

from unspool.nn.positions import (
    ADDED_POSITIONS,
    Learned,
    RelativePositions,
    Rotary,
    RotaryScaling,
    Sinusoidal,
    SinusoidalHalves,
    rotate,
)


def test_sinusoidal_by_hand():
    p = Sinusoidal(4, 10)(torch.tensor([[0, 1]]))
    assert p[0, 0].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert p[0, 1].tolist() == pytest.approx([math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)])


def test_sinusoidal_shift_is_a_fixed_rotation():
    p = Sinusoidal(8, 100)(torch.arange(60)[None])[0].double()
    k = 7
    for i in range(4):
        angle = k * 10000.0 ** (-2 * i / 8)
        turn = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        ).double()
        pair = p[:, 2 * i : 2 * i + 2]
        torch.testing.assert_close(pair[:-k] @ turn.T, pair[k:], atol=1e-5, rtol=0)


def test_rotary_by_hand():
    # head width 2, position 1: a turn by one radian
    cos, sin = Rotary(2).tables(torch.tensor([[1]]), 2)
    turned = rotate(torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), cos, sin)
    assert turned.flatten().tolist() == pytest.approx([math.cos(1), math.sin(1)])


def test_rotary_products_know_only_the_distance():
    rotary = Rotary(8)
    q, k = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(0)).unbind(0)

    def product(t1, t2):
        q1 = rotate(q, *rotary.tables(torch.tensor([[t1]]), 100))
        k2 = rotate(k, *rotary.tables(torch.tensor([[t2]]), 100))
        return (q1 * k2).sum()

    torch.testing.assert_close(product(5, 3), product(60, 58), atol=1e-5, rtol=1e-5)
    assert abs(product(5, 3) - product(5, 4)) > 1e-3


def test_rotary_scaling_stretches_long_waves_only():
    scaling = RotaryScaling(8.0, 1.0, 4.0, 8192)
    omega = torch.tensor([1.0, 2 * math.pi / 8192 * 0.5, 2 * math.pi / 8192 * 2.5])
    short, long, between = (scaling.frequencies(omega) / omega).tolist()
    assert short == pytest.approx(1.0)
    assert long == pytest.approx(1 / 8)
    assert between == pytest.approx(0.5 + 0.5 / 8)


def test_halves_are_the_same_waves_with_all_sines_in_front():
    places = torch.tensor([[0, 1, 7]])
    mixed, halves = Sinusoidal(6, 20)(places), SinusoidalHalves(6, 20)(places)
    torch.testing.assert_close(halves, mixed[..., [0, 2, 4, 1, 3, 5]], atol=1e-6, rtol=0)
    assert halves[0, 0].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    assert halves[0, 1, :1].tolist() == pytest.approx([math.sin(1.0)])


@pytest.mark.parametrize("name", ADDED_POSITIONS)
def test_added_positions_depend_on_the_position_only(name):
    p = ADDED_POSITIONS[name](6, 20)(torch.tensor([[3, 5], [5, 3]]))
    assert torch.equal(p[0, 0], p[1, 1])
    assert torch.equal(p[0, 1], p[1, 0])
    assert not torch.equal(p[0, 0], p[0, 1])


def test_learned_has_one_row_for_each_place():
    assert Learned(4, 7).weight.shape == (7, 4)


def test_a_place_beyond_learnt_positions_is_refused_in_words():
    learned = Learned(4, 6)
    assert learned(torch.tensor([[0, 5]])).shape == (1, 2, 4)
    for ask in (lambda: learned(torch.tensor([[0, 6]])), lambda: learned.check(6)):
        with pytest.raises(ValueError, match="a row has 7 tokens, but the model has 6 learned positions"):
            ask()


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
