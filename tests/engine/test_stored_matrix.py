import copy
import gc
import io
import threading

import pytest
import torch
import torch.nn.functional as F

from unspool.engine import stored_weights
from unspool.engine.stored_weights import StoredEmbedding, StoredLinear, StoredMatrix, quantise_int8
from unspool.engine.weight_formats import F32, INT8, Q4_K, Q6_K, Q8_0


def assert_same_products(layer, x):
    want = F.linear(x.double(), layer.weight.double(), None if layer.bias is None else layer.bias.double())
    assert (layer(x) - want).abs().max() <= 1e-5 * want.abs().max()


@pytest.fixture
def mixed(stored):
    """Queries, keys and values of different formats, as files have them."""
    torch.manual_seed(0)
    pieces = (stored(Q4_K, 6, 512, 1), stored(F32, 3, 512, 2), stored(Q6_K, 4, 512, 3))
    return StoredLinear(pieces, torch.randn(13)).eval()


def test_hand_computed():
    layer = StoredLinear(
        (quantise_int8(torch.tensor([[127.0, -1.0], [0.0, 254.0]])),), torch.tensor([0.5, 0.0])
    )
    assert layer.eval()(torch.tensor([[1.0, 2.0]])).tolist() == [[127.0 - 2.0 + 0.5, 508.0]]


def test_a_matrix_is_its_stacked_pieces(mixed):
    assert torch.equal(mixed.weight, torch.cat([piece.restore() for piece in mixed.pieces]))
    assert (mixed.rows, mixed.columns) == (13, 512)
    assert repr(mixed) == "StoredLinear(13, 512, Q4_K+F32+Q6_K, bias=True)"


def test_products_equal_those_of_the_restored_matrix(kind, stored):
    layer = StoredLinear((stored(kind, 40),)).eval()
    assert_same_products(layer, torch.randn(2, 3, 512))


@pytest.mark.parametrize("rows", [1, 2, 5, 13])
def test_products_made_some_rows_at_a_time(mixed, rows, monkeypatch):
    monkeypatch.setattr(stored_weights, "BUFFER_FLOATS", rows * 512)
    assert_same_products(mixed, torch.randn(7, 512))


def test_the_unpacked_matrix_is_cached_while_it_is_referenced(mixed):
    held = mixed.weight
    assert mixed.weight is held
    copied = copy.deepcopy(mixed)
    assert copied.pieces[0] is mixed.pieces[0]
    assert copied._restored is None
    del held
    gc.collect()
    assert mixed._restored() is None


def test_a_matrix_unpacked_in_inference_mode_works_outside(mixed):
    with torch.inference_mode():
        inside = mixed(torch.ones(1, 512))
        weight = mixed.weight
    assert not weight.is_inference()
    with torch.no_grad():
        assert torch.equal(mixed(torch.ones(1, 512)), inside)


def test_threads_do_not_disturb_each_other(stored):
    layers = [StoredLinear((stored(Q8_0, 64, 512, seed),)).eval() for seed in range(4)]
    x = torch.randn(3, 512)
    want = [layer(x) for layer in layers]
    wrong = []

    def work(number):
        wrong.extend(number for _ in range(30) if not torch.equal(layers[number](x), want[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_rows_by_number(mixed):
    index = torch.tensor([[12, 0, 6], [8, 9, 5]])
    assert torch.equal(mixed.take(index), mixed.weight[index])
    assert mixed.take(torch.empty(0, 2, dtype=torch.long)).shape == (0, 2, 512)
    for wrong in (-1, 13):
        with pytest.raises(IndexError, match="0 to 12"):
            mixed.take(torch.tensor([3, wrong]))


def test_gradients_are_refused(mixed):
    mixed(torch.ones(1, 512))  # as it is used
    with pytest.raises(RuntimeError, match='weights="float32"'):
        mixed(torch.ones(1, 512, requires_grad=True))
    mixed.train()
    with pytest.raises(RuntimeError, match="no gradients"):
        mixed(torch.ones(1, 512))
    with pytest.raises(RuntimeError, match="no gradients"):
        mixed.take(torch.tensor([1]))
    with torch.no_grad():
        mixed(torch.ones(1, 512))


def test_autocast_rounds_nothing(mixed):
    x = torch.randn(2, 512)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mixed(x), mixed(x.clone()))
        rounded = mixed(x.bfloat16())
    assert torch.equal(rounded, mixed(x.bfloat16().float()))


def test_saved_as_float32_under_the_usual_names(mixed):
    state = torch.nn.Sequential(mixed).state_dict()
    assert sorted(state) == ["0.bias", "0.weight"]
    plain = torch.nn.Sequential(torch.nn.Linear(512, 13))
    plain.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(plain[0](torch.ones(1, 512)), mixed(torch.ones(1, 512)))


def test_loading_other_weights_is_refused(mixed):
    with pytest.raises(RuntimeError, match="is stored and cannot be overwritten"):
        mixed.load_state_dict(mixed.state_dict())
    mixed.load_state_dict({"bias": torch.zeros(13)})
    assert mixed.bias.abs().max() == 0


@pytest.mark.parametrize("to", [torch.bfloat16, torch.float64, "meta"])
def test_other_dtypes_and_devices_are_refused(mixed, to):
    with pytest.raises(ValueError, match="float32 on the CPU"):
        torch.nn.Sequential(mixed).to(to)
    assert mixed.to("cpu", torch.float32) is mixed


def test_pickling(mixed):
    # as another process is given a model
    held = mixed.weight
    file = io.BytesIO()
    torch.save(mixed, file)
    assert held is mixed.weight


def test_pieces_of_different_widths_are_refused(stored):
    with pytest.raises(ValueError, match=r"equal widths, not \[256, 512\]"):
        StoredMatrix((stored(Q8_0, 2, 256), stored(INT8, 2, 512)))


def test_an_embedding_knows_its_sizes(stored):
    embed = StoredEmbedding((stored(Q8_0, 10, 64),)).eval()
    assert (embed.num_embeddings, embed.embedding_dim) == (10, 64)
