import pytest
import torch

from unspool.adapters.huggingface import to_huggingface
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.nn.positions import RotaryScaling

LLAMA = TransformerConfig(61, 32, 2, 4, 2, 16, 48, 64, norm_eps=1e-6)
GPT2 = TransformerConfig(
    61, 32, 2, 4, 4, 8, 128, 64, norm="layer", positions="learned", activation="gelu_tanh", bias=True
)


def change(config, **fields):
    return TransformerConfig(**{**vars(config), **fields})


@pytest.mark.parametrize(
    "config",
    [
        LLAMA,
        change(LLAMA, tied=False, bias=True),
        change(LLAMA, rotary_scaling=RotaryScaling(4.0, 1.0, 4.0, 16), rotary_base=500.0),
        GPT2,
        change(GPT2, tied=False),
    ],
)
def test_the_twin_gives_the_same_log_probabilities(config):
    torch.manual_seed(0)
    model = TransformerLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokens = torch.randint(0, 61, (3, 40))
    with torch.no_grad():
        want = to_huggingface(model)(tokens).logits.log_softmax(-1)
        torch.testing.assert_close(model(tokens), want, atol=1e-4, rtol=1e-4)
        assert want.std() > 0.1  # the comparison is of something


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (change(LLAMA, norm_place="post"), "norm_place='post'"),
        (change(LLAMA, activation="relu"), "activation='relu'"),
        (change(LLAMA, qkv_bias=True), "Qwen 2"),
        (change(GPT2, bias=False), "GPT-2 has biases"),
    ],
)
def test_what_has_no_twin_is_refused(config, message):
    with pytest.raises(ValueError, match=message):
        to_huggingface(TransformerLM(config))
