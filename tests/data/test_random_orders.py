from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.data.random_numbers import random_below, random_bits, random_permutation


@given(st.integers(0, 200), st.integers(0, 2**63), st.integers(0, 10**6))
def test_a_shuffle_has_every_number_once_and_depends_on_its_seed_alone(
    count: int, seed: int, epoch: int
) -> None:
    order = random_permutation(count, seed, epoch)
    assert sorted(order.tolist()) == list(range(count))
    np.testing.assert_array_equal(order, random_permutation(count, seed, epoch))


def test_the_bits_are_those_of_every_other_day() -> None:
    # Philox's own stream, promised by numpy never to change, for the hash of "(1, 2)".
    assert random_bits(2, 1, 2).tolist() == [11192480784957369480, 18159161688932297043]


def test_another_seed_or_epoch_is_another_order() -> None:
    orders = {
        tuple(random_permutation(20, *seed).tolist()) for seed in ((0,), (0, 0), (0, 1), (1,), (1, 0), (1, 1))
    }
    assert len(orders) == 6


def test_a_number_is_below_its_limit_and_each_is_drawn() -> None:
    assert {random_below(3, seed) for seed in range(50)} == {0, 1, 2}


def test_a_negative_seed_is_said() -> None:
    with pytest.raises(ValueError, match="seed is -1"):
        random_permutation(3, -1)
