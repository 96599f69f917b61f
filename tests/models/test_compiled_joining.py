import pytest
import torch

from unspool.models.transformer_lm import TransformerConfig

GEMMA = {
    "norm_place": "both",
    "activation": "geglu",
    "attention_cap": 2.0,
    "qk_norm": "head",
    "window": 7,
    "windowed_layers": (0,),
    "window_rotary_base": 10.0,
}


@pytest.fixture(params=[{}, GEMMA], ids=["llama", "gemma"])
def model(request):
    torch.manual_seed(0)
    sizes = {"vocab_size": 17, "width": 16, "layers": 2, "heads": 4, "kv_heads": 2, "inner_width": 20}
    shape = TransformerConfig(**sizes, head_width=4, context=99, **request.param)
    return shape.build().eval()


def test_rows_of_a_joined_state_advance_independently(model):
    joining = model.joining
    state = joining.join([model.start([[1, 2, 3], [4]])[1], model.start([[7] * 20])[1]])
    step, state = joining.extend_rows(state, torch.tensor([0, 2]), torch.tensor([[5, 6], [8, 9]]))
    texts = [[1, 2, 3, 5], [1, 2, 3, 5, 6], [7] * 20 + [8], [7] * 20 + [8, 9]]
    for row, text in enumerate(texts):
        assert torch.equal(step.logp_NV[row], model.start([text])[0].logp_NV[0])
    state = joining.rewind_rows(state, torch.tensor([2]), torch.tensor([2]))
    step, state = joining.extend_rows(state, torch.tensor([0, 1, 2]), torch.tensor([[10], [11], [12]]))
    for row, text in enumerate([[1, 2, 3, 5, 6, 10], [4, 11], [7] * 20 + [12]]):
        assert torch.equal(step.logp_NV[row], model.start([text])[0].logp_NV[0])


def test_a_failure_leaves_the_state_as_it_was(model, monkeypatch):
    state = model.start([[1, 2, 3], [4]])[1]
    rows, tokens = torch.tensor([0, 1]), torch.tensor([[5], [6]])
    with pytest.raises(IndexError):
        model.joining.extend_rows(state, rows, torch.tensor([[5], [17]]))
    with monkeypatch.context() as broken:
        broken.setattr(state.engine, "run", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.joining.extend_rows(state, rows, tokens)
    step, _ = model.joining.extend_rows(state, rows, tokens)
    assert torch.equal(step.logp_NV[0], model.start([[1, 2, 3, 5]])[0].logp_NV[0])
