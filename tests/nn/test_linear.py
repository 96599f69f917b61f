import gc

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import nn

from unspool.nn.linear import MAX_ROWS_PER_THREAD, MIN_WEIGHT_SIZE, DirectCall, Linear, LowRankLinear, linear


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(params=[0, MIN_WEIGHT_SIZE], ids=["halved", "whole"], autouse=True)
def small(request, monkeypatch):
    """A row times weights in halves, as large ones are multiplied, and times those that caches hold."""
    monkeypatch.setattr("unspool.nn.linear.MIN_WEIGHT_SIZE", request.param)


def test_hand_computed():
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, -1.0]])
    with torch.no_grad():
        y = linear(torch.tensor([[1.0, 10.0]]), weight, torch.tensor([0.5, 0.0, 0.0]))
    assert y.tolist() == [[21.5, 43.0, -10.0]]


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 33])
@pytest.mark.parametrize("outputs", [1, 2, 7, 40])
@pytest.mark.parametrize("bias", [False, True])
def test_every_number_of_rows_is_the_same_product(rows, outputs, bias, threads):
    torch.manual_seed(0)
    layer = Linear(24, outputs, bias)
    x = torch.randn(rows, 1, 24)
    want = F.linear(x.double(), layer.weight.double(), None if layer.bias is None else layer.bias.double())
    with torch.no_grad():
        assert layer(x).shape == (rows, 1, outputs)
        assert layer(x).is_contiguous()
        torch.testing.assert_close(layer(x), want.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_changed_weight_is_seen_at_once(rows, threads):
    layer = Linear(3, 2)
    x = torch.ones(rows, 3)
    with torch.no_grad():
        before = layer(x)
        layer.weight.mul_(2)
        torch.testing.assert_close(layer(x), 2 * before)
        layer.weight = torch.nn.Parameter(torch.zeros(2, 3))
        assert layer(x).abs().max() == 0


def test_gradients_flow():
    layer = Linear(3, 2)
    layer(torch.ones(1, 3)).sum().backward()
    assert layer.weight.grad.tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize("weight", ["turned", "every other row"])
@pytest.mark.parametrize("rows", [1, 3])
def test_weights_that_do_not_lie_row_by_row(weight, rows):
    torch.manual_seed(0)
    W = torch.randn(24, 40).t() if weight == "turned" else torch.randn(80, 24)[::2]
    x = torch.randn(rows, 24)
    with torch.no_grad():
        torch.testing.assert_close(linear(x, W), x @ W.contiguous().t(), atol=1e-5, rtol=1e-5)


def test_the_weights_are_in_memory_once(threads):
    """Whatever is kept by a layer after products of every kind is what it began with."""
    layer = Linear(64, 96, bias=True)
    place, size = layer.weight.data_ptr(), sum(it.nbytes for it in layer.parameters())
    with torch.no_grad():
        for rows in (1, 2, MAX_ROWS_PER_THREAD, 3 * MAX_ROWS_PER_THREAD, 100):
            layer(torch.randn(rows, 64))
    assert layer.weight.data_ptr() == place
    tensors = (it for it in gc.get_objects() if issubclass(type(it), torch.Tensor))
    held = [it for it in tensors if it.shape in {(96, 64), (64, 96)}]
    assert [it.data_ptr() for it in held] == [place]
    assert sum(it.nbytes for it in (*layer.parameters(), *layer.buffers())) == size


def test_an_optimizer_that_changes_weights_in_silence_is_noticed():
    linear, x = Linear(4, 3), torch.randn(2, 4)
    optimizer = torch.optim.AdamW(linear.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        with torch.no_grad():
            linear(x)
        linear(x).sum().backward()
        optimizer.step()
    with torch.no_grad():
        torch.testing.assert_close(linear(x), F.linear(x, linear.weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3])
def test_under_autocast_the_product_is_in_its_precision_whatever_is_read(rows, dtype, threads):
    torch.manual_seed(0)
    layer, x = Linear(24, 40, bias=True), torch.randn(rows, 24).to(dtype)
    with torch.no_grad():
        want = layer(x.float())
        with torch.autocast("cpu", torch.bfloat16):
            found = layer(x)
        torch.testing.assert_close(layer(x.float()), want)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), want, atol=0.02, rtol=0.01)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_layer_in_another_precision_computes_in_it(rows, dtype, threads):
    torch.manual_seed(0)
    layer, x = Linear(24, 40).to(dtype), torch.randn(rows, 24, dtype=dtype)
    with torch.no_grad():
        assert torch.equal(layer(x), F.linear(x, layer.weight))


@pytest.mark.parametrize("rows", [1, 3])
def test_two_precisions_are_refused_as_torch_refuses_them(rows, threads):
    with torch.no_grad(), pytest.raises(RuntimeError, match="same dtype"):
        Linear(24, 40)(torch.randn(rows, 24, dtype=torch.bfloat16))


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


class Twice(DirectCall):
    def forward(self, x):
        return 2 * x


class QuickLinear(DirectCall, nn.Linear):
    pass


def test_it_is_called_as_any_module():
    x = torch.ones(1)
    assert Twice()(x) == 2
    with torch.inference_mode():
        assert Twice()(x) == 2
    layer = QuickLinear(2, 3)
    with torch.no_grad():
        assert torch.equal(
            layer(torch.ones(1, 2)), nn.functional.linear(torch.ones(1, 2), layer.weight, layer.bias)
        )


def test_hooks_are_called_with_and_without_gradients():
    module, heard = Twice(), []
    module.register_forward_hook(lambda m, args, out: heard.append(float(out)))
    module(torch.ones(1))
    with torch.no_grad():
        module(torch.full((1,), 2.0))
    assert heard == [2.0, 4.0]


def test_a_hook_may_change_the_input():
    module = Twice()
    module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    with torch.inference_mode():
        assert module(torch.ones(1)) == 4
