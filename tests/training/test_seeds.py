import torch

from unspool.training.forward_pass import derive_seed, seed_torch


def test_seeds_differ_in_every_part():
    seen = {derive_seed(seed, number) for seed in range(20) for number in range(20)}
    assert len(seen) == 400
    assert derive_seed(1, 23) != derive_seed(12, 3)
    assert derive_seed(0, "weights") != derive_seed(0, 0)
    assert all(0 <= it < 2**63 for it in seen)


def test_a_seed_is_the_same_for_ever():
    assert derive_seed(1, 2) == 7777801250388762567


def test_reseeding_repeats_what_follows():
    seed_torch(1, 2)
    first = torch.rand(3)
    torch.rand(7)
    seed_torch(1, 2)
    assert torch.equal(first, torch.rand(3))
