import copy

import pytest
import torch

from unspool.engine.stored_softmax import StoredSoftmax, TiedStoredSoftmax
from unspool.engine.stored_weights import StoredEmbedding, StoredLinear, quantise_int8
from unspool.heads import HEADS
from unspool.models import TransformerConfig
from unspool.models.loading.run_folder import load_folder, save_folder
from unspool.models.loading.weights import install_stored_weights, storable_weights

V = 7
LM = TransformerConfig(
    vocab_size=V, width=16, layers=2, heads=4, kv_heads=2, head_width=4, inner_width=24, context=32
)
PROMPTS = [[3, 4, 5, 6], [4], [6, 3, 3]]


def int8(model):
    """The model in eight bits, and the one in float32 that its numbers are."""
    small = copy.deepcopy(model)
    state = model.state_dict()
    install_stored_weights(small, {name: (quantise_int8(state[name]),) for name in storable_weights(small)})
    twin = copy.deepcopy(model)
    twin.load_state_dict(small.state_dict())
    return small.eval(), twin.eval()


def test_what_takes_the_place_of_what():
    small, _ = int8(LM.build())
    assert type(small.embed) is StoredEmbedding
    assert {type(part) for name, part in small.named_modules() if name.endswith((".qkv", ".down"))} == {
        StoredLinear
    }
    assert type(small.head) is TiedStoredSoftmax
    assert small.head.pieces is small.embed.pieces
    untied, _ = int8(TransformerConfig(**{**vars(LM), "tied": False}).build())
    assert type(untied.head) is StoredSoftmax


def test_every_kind_of_model_says_what_its_numbers_say(any_speaker):
    small, twin = int8(any_speaker.model)
    assert not any(parameter.requires_grad for parameter in small.parameters())
    steps = []
    for model in (small, twin):
        step, state = model.start(PROMPTS)
        said = [step.logp_NV]
        for token in (3, 5):
            step, state = model.step(state.select(torch.tensor([2, 0, 0])), torch.tensor([token] * 3))
            said.append(step.logp_NV)
        steps.append(torch.stack(said))
    torch.testing.assert_close(*steps, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", HEADS)
def test_every_head_says_what_its_numbers_say(head, tied):
    torch.manual_seed(0)
    options = {} if head == "kerbs" else {"tied": tied, "bias": True}
    model = TransformerConfig(**{**vars(LM), "head": HEADS[head](**options)}).build().eval()
    small, twin = int8(model)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    with torch.no_grad():
        torch.testing.assert_close(small(tokens), twin(tokens), atol=1e-5, rtol=1e-5)
    if twin.output_matrix is not None:
        torch.testing.assert_close(small.output_matrix, twin.output_matrix)


def test_a_saved_model_is_float32_and_says_the_same(any_speaker, tmp_path):
    small, _ = int8(any_speaker.model)
    save_folder(small, tmp_path / "run")
    again = load_folder(tmp_path / "run")
    assert storable_weights(again) == storable_weights(any_speaker.model)
    want, got = (model.start(PROMPTS)[0].logp_NV for model in (small, again))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_a_copy_shares_the_stored_weights():
    small, _ = int8(LM.build())
    twin = copy.deepcopy(small)
    assert twin.blocks[0].attention.qkv.pieces[0] is small.blocks[0].attention.qkv.pieces[0]
    assert twin.head._embed[0] is twin.embed
    assert torch.equal(twin.start(PROMPTS)[0].logp_NV, small.start(PROMPTS)[0].logp_NV)


def test_training_is_refused_in_words():
    small, _ = int8(LM.build())
    with pytest.raises(RuntimeError, match='load it with weights="float32"'):
        small.train()(torch.tensor([[1, 2, 3]]))


def test_nothing_to_store_changes_nothing():
    model = LM.build()
    install_stored_weights(model, {})
    assert all(parameter.requires_grad for parameter in model.parameters())
