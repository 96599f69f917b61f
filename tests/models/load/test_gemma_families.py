import pytest
import torch
import transformers as tf

import unspool as us

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "head_dim": 16,
    "sliding_window": 6,
    "query_pre_attn_scalar": 24,
}
CAPS = {"final_logit_softcapping": 5.0, "attn_logit_softcapping": 3.0}
LAYERS = {"layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]}
CASES = {
    "gemma2": (tf.Gemma2ForCausalLM, tf.Gemma2Config, CAPS),
    "gemma2 without caps": (tf.Gemma2ForCausalLM, tf.Gemma2Config, dict.fromkeys(CAPS)),
    "gemma3": (tf.Gemma3ForCausalLM, tf.Gemma3TextConfig, LAYERS),
}


def saved(folder, kind, config, settings):
    torch.manual_seed(0)
    model = kind(config(**SIZES | settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers_beyond_the_window_too(name, tmp_path):
    theirs, ours = saved(tmp_path, *CASES[name]), us.load(tmp_path)
    assert ours.engine == "torch"  # there are no kernels for it
    tokens = torch.randint(3, 50, (2, 24))
    with torch.no_grad():
        want = theirs(tokens, use_cache=False).logits.log_softmax(-1)
        torch.testing.assert_close(ours(tokens), want, atol=2e-4, rtol=1e-4)
    rows = tokens.tolist()
    step, state = ours.start([rows[0][:20], rows[1][:3]])
    for place in range(4):
        torch.testing.assert_close(step.logp_NV[0], want[0, 19 + place], atol=2e-4, rtol=1e-4)
        torch.testing.assert_close(step.logp_NV[1], want[1, 2 + place], atol=2e-4, rtol=1e-4)
        if place < 3:
            step, state = ours.step(state, torch.tensor([rows[0][20 + place], rows[1][3 + place]]))


def test_what_cannot_be_compiled_says_why(tmp_path):
    saved(tmp_path, *CASES["gemma3"])
    with pytest.raises(ValueError, match=r"cannot be compiled: activation='geglu' has no kernel"):
        us.load(tmp_path, engine="compiled")


def test_bent_logits_have_no_output_matrix(tmp_path):
    saved(tmp_path, *CASES["gemma2"])
    assert us.load(tmp_path).output_matrix is None
