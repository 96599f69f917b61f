import pytest
import torch

from unspool.models.transformer_lm import TransformerConfig, TransformerLM

SHAPE = {
    "vocab_size": 13,
    "width": 16,
    "layers": 4,
    "heads": 4,
    "kv_heads": 2,
    "head_width": 4,
    "inner_width": 24,
    "context": 32,
}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return TransformerLM(TransformerConfig(**SHAPE)).eval()


def cut_after(model, layers):
    """The same weights with the later blocks taken out."""
    short = TransformerLM(TransformerConfig(**{**SHAPE, "layers": layers})).eval()
    short.load_state_dict({k: v for k, v in model.state_dict().items() if k in short.state_dict()})
    return short


def test_an_exit_is_what_the_model_without_the_later_blocks_says(model):
    view = model.exits((3, 1))
    assert model.layered is model
    assert model.layers == 4
    prompts, tokens = [[1, 2, 3], [4]], torch.tensor([5, 6])
    shorter = [cut_after(model, 3), cut_after(model, 1)]
    step, state = view.start(prompts)
    short = [each.start(prompts) for each in shorter]
    for _ in range(3):
        for place, (want, _) in enumerate(short):
            torch.testing.assert_close(step.exits_NEV[:, place], want.logp_NV)
        step, state = view.step(state, tokens)
        short = [each.step(past, tokens) for each, (_, past) in zip(shorter, short, strict=True)]


def test_the_last_layer_is_untouched(model):
    view = model.exits([2])
    prompts, rows = [[1, 2, 3], [4]], torch.tensor([1, 0, 1])
    (step, state), (want, past) = view.start(prompts), model.start(prompts)
    step, state, want, past = step.select(rows), state.select(rows), want.select(rows), past.select(rows)
    torch.testing.assert_close(step.logp_NV, want.logp_NV)
    assert step.exits_NEV.shape == (3, 1, 13)
    tokens = torch.tensor([7, 8, 9])
    (step, _), (want, _) = view.step(state, tokens), model.step(past, tokens)
    torch.testing.assert_close(step.logp_NV, want.logp_NV)
    torch.testing.assert_close(step.hidden_ND, want.hidden_ND)


def test_depth_zero_is_the_embedding_alone(model):
    step, _ = model.exits((0,)).start([[1, 2, 3]])
    with torch.no_grad():
        want = model.head(model.norm(model.embed.weight[3]))
    torch.testing.assert_close(step.exits_NEV[0, 0], want)


def test_weights_are_shared_and_the_face_is_the_models(model):
    view = model.exits((1,))
    assert view == model.exits([1])
    assert (view.vocab_size, view.context, view.tokenizer) == (13, 32, None)
    with torch.no_grad():
        model.embed.weight.mul_(2)
    torch.testing.assert_close(view.start([[1]])[0].logp_NV, model.start([[1]])[0].logp_NV)


@pytest.mark.parametrize("layers", [(), (4,), (-1,), (1, 9)])
def test_layers_that_are_not_early_are_refused(model, layers):
    with pytest.raises(ValueError, match="layer"):
        model.exits(layers)


def test_exits_of_a_model_in_train_mode_are_without_dropout(model):
    learning = TransformerLM(TransformerConfig(**SHAPE, dropout=0.5)).train()
    learning.load_state_dict(model.state_dict())
    step, state = learning.exits((1,)).start([[1, 2, 3], [4]])
    want, past = model.exits((1,)).start([[1, 2, 3], [4]])
    torch.testing.assert_close(step.exits_NEV, want.exits_NEV)
    tokens = torch.tensor([5, 6])
    step, want = learning.exits((1,)).step(state, tokens)[0], model.exits((1,)).step(past, tokens)[0]
    torch.testing.assert_close(step.logp_NV, want.logp_NV)
    assert all(part.training for part in learning.modules())
