import torch

from unspool.engine.stored_weights import StoredEmbedding, StoredLinear, quantise_int8


def test_a_linear_layer():
    layer = StoredLinear((quantise_int8(torch.tensor([[127.0, 1.0]])),)).eval()
    assert layer(torch.tensor([[[1.0, 2.0]], [[0.0, 3.0]]])).tolist() == [[[129.0]], [[3.0]]]


def test_hooks_are_called():
    layer = StoredLinear((quantise_int8(torch.tensor([[127.0, 1.0]])),)).eval()
    seen = []
    layer.register_forward_hook(lambda *it: seen.append(it[2].tolist()))
    with torch.no_grad():
        layer(torch.ones(1, 2))
    assert seen == [[[128.0]]]


def test_an_embedding():
    embed = StoredEmbedding((quantise_int8(torch.tensor([[127.0, 1.0], [2.0, 254.0]])),)).eval()
    assert embed(torch.tensor([[1], [0]])).tolist() == [[[2.0, 254.0]], [[127.0, 1.0]]]
    # only the rows asked for are restored
    assert embed._restored is None
