import pytest
import torch

from unspool.models.rnn_models import RNNConfig

SHAPE = {"vocab_size": 9, "width": 6}


def make(**changes):
    torch.manual_seed(0)
    return RNNConfig(**{**SHAPE, **changes}).build().eval()


def test_by_its_equation():
    model = make(cell="gru")
    h = torch.zeros(1, 1, 6)
    with torch.no_grad():
        for token in (3, 4):
            out, h = model.rnn.step(model.embed.weight[token][None], h)
        want = (out @ model.embed.weight.T).log_softmax(-1)
        torch.testing.assert_close(model(torch.tensor([[3, 4]]))[:, -1], want)


def test_there_is_no_limit_of_context():
    model = make()
    assert model.context is None
    step, _ = model.start([[3] * 500])
    assert step.logp_NV.isfinite().all()


def test_names_of_the_weights():
    assert {name: tuple(p.shape) for name, p in make().named_parameters()} == {
        "embed.weight": (9, 6),
        "rnn.net.weight_ih_l0": (24, 6),
        "rnn.net.weight_hh_l0": (24, 6),
        "rnn.net.bias_ih_l0": (24,),
        "rnn.net.bias_hh_l0": (24,),
    }


def test_dropout_works_in_training_only():
    model, tokens = make(dropout=0.5), torch.tensor([[3, 4, 5]])
    assert torch.equal(model(tokens), model(tokens))
    model.train()
    assert not torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "x"}, "'x' is not a known value of RNNConfig.cell: choose from gru, lstm"),
        ({"layers": 0}, "layers is 0"),
        ({"dropout": 1.5}, "dropout is 1.5"),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)
