import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.nn.linear import Linear, LowRankLinear


def layer(inputs, outputs, rank, alpha, bias=False, seed=0):
    torch.manual_seed(seed)
    made = LowRankLinear(Linear(inputs, outputs, bias), rank, alpha)
    torch.nn.init.normal_(made.lora_b)
    return made


def test_by_hand():
    made = layer(2, 2, rank=1, alpha=3.0)
    with torch.no_grad():
        made.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
        made.lora_a.copy_(torch.tensor([[1.0, -1.0]]))
        made.lora_b.copy_(torch.tensor([[2.0], [1.0]]))
    # W x = (5, 2);  A x = −1;  3·B·(−1) = (−6, −3)
    assert made(torch.tensor([1.0, 2.0])).tolist() == [-1.0, -1.0]
    assert made.merged_weight().tolist() == [[7.0, -4.0], [3.0, -2.0]]


def test_it_begins_as_the_layer_that_it_takes_the_place_of():
    linear, x = Linear(5, 3, True), torch.randn(4, 5)
    expected = linear(x)
    assert torch.equal(LowRankLinear(linear, 2, 4.0)(x), expected)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 3), st.booleans(), st.integers(0, 99))
def test_merged_says_the_same_with_gradients_and_without(inputs, outputs, rank, bias, seed):
    made = layer(inputs, outputs, rank, 2.0 * rank, bias, seed)
    x, plain = torch.randn(3, inputs), made.merged()
    assert type(plain) is Linear
    torch.testing.assert_close(plain(x), made(x), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(plain(x), made(x), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(plain(x[:1]), made(x[:1]), atol=1e-5, rtol=1e-5)


def test_only_the_thin_matrices_learn_and_the_merged_layer_learns_again():
    made = layer(3, 4, rank=2, alpha=2.0, bias=True)
    made(torch.randn(2, 3)).sum().backward()
    assert {name for name, it in made.named_parameters() if it.grad is not None} == {"lora_a", "lora_b"}
    assert all(it.requires_grad for it in made.merged().parameters())


def test_dropout_is_of_the_thin_branch_alone():
    made = LowRankLinear(Linear(64, 8), 4, 4.0, dropout=0.5)
    x = torch.ones(1, 64)
    assert torch.equal(made(x), made(x))  # B = 0: whatever is dropped, W x stays
    torch.nn.init.normal_(made.lora_b)
    assert not torch.equal(made(x), made(x))
    made.eval()
    assert torch.equal(made(x), made(x))


def test_an_update_of_the_thin_matrices_is_seen_without_gradients():
    made, x = layer(3, 3, rank=1, alpha=1.0), torch.randn(2, 3)
    with torch.no_grad():
        before = made(x)
        made.lora_b.add_(1.0)
        assert not torch.equal(made(x), before)


@pytest.mark.parametrize("rank", [1, 3])
def test_it_counts_as_few_numbers_as_the_paper_says(rank):
    made = layer(10, 20, rank=rank, alpha=1.0)
    assert sum(it.numel() for it in made.parameters() if it.requires_grad) == rank * (10 + 20)
