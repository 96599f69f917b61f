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
    "gemma2 with a head of its own": (
        tf.Gemma2ForCausalLM,
        tf.Gemma2Config,
        CAPS | {"tie_word_embeddings": False},
    ),
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


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers_beyond_the_window_too(name, engine, tmp_path):
    theirs, ours = saved(tmp_path, *CASES[name]), us.load(tmp_path)
    assert ours.engine == "compiled"
    ours.engine = engine
    tokens = torch.randint(3, 50, (2, 60))
    with torch.no_grad():
        want = theirs(tokens, use_cache=False).logits.log_softmax(-1)
        torch.testing.assert_close(ours(tokens), want, atol=1e-4, rtol=1e-5)
    rows = tokens.tolist()
    step, state = ours.start([rows[0][:50], rows[1][:3]])
    for place in range(10):
        torch.testing.assert_close(step.logp_NV[0], want[0, 49 + place], atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(step.logp_NV[1], want[1, 2 + place], atol=1e-4, rtol=1e-5)
        step, state = ours.step(state, torch.tensor([rows[0][50 + place], rows[1][3 + place]]))
    asked = {"max_new_tokens": 30, "do_sample": False, "pad_token_id": 0}
    said = theirs.generate(tokens[:1, :8], attention_mask=torch.ones(1, 8), **asked)[0, 8:].tolist()
    assert list(us.generate(ours, [rows[0][:8]], us.Greedy(), max_new_tokens=30)[0].tokens) == said


@pytest.mark.parametrize("weights", ["stored", "int8"])
@pytest.mark.parametrize("name", CASES)
def test_packed_weights_say_nearly_the_same_and_the_same_by_either_engine(name, weights, tmp_path):
    theirs, tokens = saved(tmp_path, *CASES[name]).bfloat16(), torch.randint(3, 50, (1, 40))
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        want = theirs.float()(tokens).logits[0, -1].log_softmax(-1)
    ours = us.load(tmp_path, weights=weights)
    assert ours.engine == "compiled"
    compiled, _ = ours.start(tokens.tolist())
    ours.engine = "torch"
    torch.testing.assert_close(compiled.logp_NV, ours.start(tokens.tolist())[0].logp_NV, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(compiled.logp_NV[0], want, atol=0.2, rtol=0.05)


def test_bent_logits_have_no_output_matrix(tmp_path):
    saved(tmp_path, *CASES["gemma2"])
    assert us.load(tmp_path).output_matrix is None
