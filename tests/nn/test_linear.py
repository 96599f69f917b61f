import gc

import pytest
import torch
import torch.nn.functional as F

from unspool.nn.linear import FEW, SMALL, Linear, linear


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(params=[0, SMALL], ids=["halved", "whole"], autouse=True)
def small(request, monkeypatch):
    """A row times weights in halves, as large ones are multiplied, and times those that caches hold."""
    monkeypatch.setattr("unspool.nn.linear.SMALL", request.param)


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
        for rows in (1, 2, FEW, 3 * FEW, 100):
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
