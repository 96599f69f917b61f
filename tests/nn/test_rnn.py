import math

import pytest
import torch

from unspool.nn.rnn import CELLS, GRU, LSTM


@pytest.fixture(params=[(cell, layers) for cell in CELLS for layers in (1, 3)], ids=str)
def net(request):
    cell, layers = request.param
    torch.manual_seed(0)
    return CELLS[cell](5, 6, layers).eval()


def inputs(rows=3, length=7, seed=1):
    return torch.randn(rows, length, 5, generator=torch.Generator().manual_seed(seed))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def by_hand(net, weights):
    """A network of width 1 with the given W, U of each gate and no biases."""
    with torch.no_grad():
        for name, parameter in net.net.named_parameters():
            parameter.zero_()
            if name.startswith("weight"):
                parameter.copy_(torch.tensor(weights[name.split("_")[1]])[:, None])
    return net


def test_gru_by_hand():
    net = by_hand(GRU(1, 1), {"ih": [0.5, -1.0, 2.0], "hh": [1.0, 0.5, -1.5]})
    h, x = 0.4, 0.3
    r, z = sigmoid(0.5 * x + 1.0 * h), sigmoid(-1.0 * x + 0.5 * h)
    n = math.tanh(2.0 * x + r * -1.5 * h)
    out, state = net.step(torch.tensor([[x]]), torch.tensor([[[h]]]))
    assert out.item() == pytest.approx((1 - z) * n + z * h)
    assert state.item() == out.item()


def test_lstm_by_hand():
    net = by_hand(LSTM(1, 1), {"ih": [0.5, -1.0, 2.0, 0.3], "hh": [1.0, 0.5, -1.5, 0.2]})
    h, c, x = 0.4, -0.2, 0.3
    i, f, o = sigmoid(0.5 * x + 1.0 * h), sigmoid(-1.0 * x + 0.5 * h), sigmoid(0.3 * x + 0.2 * h)
    c = f * c + i * math.tanh(2.0 * x - 1.5 * h)
    out, state = net.step(torch.tensor([[x]]), torch.tensor([[[h, -0.2]]]))
    assert out.item() == pytest.approx(o * math.tanh(c))
    assert state[0, 0].tolist() == pytest.approx([out.item(), c])


@torch.no_grad()
def test_step_by_step_equals_the_whole(net):
    x_NTE = inputs()
    want, end = net.read(x_NTE)
    state = torch.zeros(3, net.layers, net.state_width)
    for t in range(7):
        out, state = net.step(x_NTE[:, t], state)
        torch.testing.assert_close(out, want[:, t], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(net.top(state), out)
    torch.testing.assert_close(state, end, atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_reading_goes_on_from_a_state(net):
    x_NTE = inputs()
    want, end = net.read(x_NTE)
    _, state = net.read(x_NTE[:, :3])
    out, state = net.read(x_NTE[:, 3:], state)
    torch.testing.assert_close(out, want[:, 3:])
    torch.testing.assert_close(state, end)


def test_steps_and_the_whole_have_the_same_gradients(net):
    x_NTE = inputs()
    net.read(x_NTE)[0].sum().backward()
    want = {name: parameter.grad.clone() for name, parameter in net.named_parameters()}
    net.zero_grad()
    state, total = torch.zeros(3, net.layers, net.state_width), 0.0
    for x_NE in x_NTE.unbind(1):
        out, state = net.step(x_NE, state)
        total = total + out.sum()
    total.backward()
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.grad, want[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
@torch.no_grad()
def test_padding_and_batch_mates_never_change_a_row(cell, bidirectional):
    net = CELLS[cell](5, 6, 2, bidirectional=bidirectional).eval()
    x_NTE, lengths = inputs(), torch.tensor([4, 7, 1])
    out, end = net.read(x_NTE, lengths_N=lengths)
    for row, n in enumerate(lengths.tolist()):
        alone, state = net.read(x_NTE[row : row + 1, :n])
        torch.testing.assert_close(out[row : row + 1, :n], alone, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(end[row : row + 1], state, atol=1e-6, rtol=1e-5)
        assert not out[row, n:].any()
    assert out.shape[-1] == net.out_width == (12 if bidirectional else 6)


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_with_shared_weights_reversing_the_input_swaps_the_halves(cell):
    net = CELLS[cell](5, 6, bidirectional=True).eval()
    for name, parameter in net.net.named_parameters():
        if name.endswith("_reverse"):
            parameter.copy_(getattr(net.net, name.removesuffix("_reverse")))
    x_NTE = inputs()
    forwards, _ = net.read(x_NTE)
    backwards, _ = net.read(x_NTE.flip(1))
    right, left = forwards.chunk(2, dim=-1)
    torch.testing.assert_close(backwards.flip(1), torch.cat((left, right), dim=-1))


@torch.no_grad()
def test_a_layer_reads_the_one_before_it(net):
    x_NTE = inputs()
    before, _ = net.read(x_NTE)
    last = net.layers - 1
    getattr(net.net, f"weight_ih_l{last}").zero_()
    after, _ = net.read(x_NTE)
    changed, _ = net.read(inputs(seed=2))
    torch.testing.assert_close(after, changed)
    assert not torch.allclose(before, after)


def test_dropout_stands_between_layers_only():
    torch.manual_seed(0)
    single, double = GRU(5, 6, 1, dropout=0.5), GRU(5, 6, 2, dropout=0.5)
    x_NE = inputs()[:, 0]
    zeros = lambda net: torch.zeros(3, net.layers, 6)  # noqa: E731
    assert torch.equal(single.step(x_NE, zeros(single))[0], single.step(x_NE, zeros(single))[0])
    assert not torch.equal(double.step(x_NE, zeros(double))[0], double.step(x_NE, zeros(double))[0])
