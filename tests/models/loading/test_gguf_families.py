"""Files with the tensors' names of the `gguf` package beside transformers' own classes."""

import pytest
import torch

import unspool as us
from unspool.engine.engine_choice import ENGINES
from unspool.models.loading.config_reader import UnsupportedModelError
from unspool.models.loading.gguf_file import open_gguf
from unspool.models.loading.gguf_weights import gguf_config, gguf_weights

CAPS = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0}
WINDOW = {"attention.sliding_window": 3, "attention.key_length": 8, "attention.value_length": 8}
PART = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
LINEAR = {
    "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
}
STRETCHED = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0, "rope.freq_base_swa": 300.0}
CASES = {
    # name: family, its options; architecture, what its metadata say beyond the sizes
    "olmo2": ("Olmo2", {}, "olmo2", {}),
    "phi3": ("Phi3", {}, "phi3", {"rope.dimension_count": 8}),
    "phi3, partly turned": ("Phi3", {"rope_parameters": PART}, "phi3", {"rope.dimension_count": 4}),
    "phi3, windowed": (
        "Phi3",
        {"sliding_window": 3},
        "phi3",
        {"rope.dimension_count": 8, "attention.sliding_window": 3},
    ),
    "phi3, no window": ("Phi3", {}, "phi3", {"rope.dimension_count": 8, "attention.sliding_window": 0}),
    "smollm3": ("SmolLM3", {}, "smollm3", {}),
    "gemma2": ("Gemma2", CAPS, "gemma2", WINDOW | CAPS),
    "gemma3": ("Gemma3Text", {}, "gemma3", WINDOW),
    "gemma3, stretched": ("Gemma3Text", {"rope_parameters": LINEAR}, "gemma3", WINDOW | STRETCHED),
    "qwen3": ("Qwen3", {"head_dim": 8}, "qwen3", {"attention.key_length": 8}),
}


def compare(twin, ours, atol=1e-4):
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4]])
    with torch.no_grad():
        want = twin.model(tokens, use_cache=False).logits.float().log_softmax(-1)
    rows = tokens.tolist()
    step, state = ours.start([rows[0][:9], rows[1][:2]])
    for place in range(3):
        torch.testing.assert_close(step.logp_NV[0], want[0, 8 + place], atol=atol, rtol=0)
        torch.testing.assert_close(step.logp_NV[1], want[1, 1 + place], atol=atol, rtol=0)
        if place < 2:
            step, state = ours.step(state, torch.tensor([rows[0][9 + place], rows[1][2 + place]]))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_every_family_equals_transformers_by_either_engine(make_twin, write_gguf, name, engine):
    family, options, architecture, said = CASES[name]
    twin = make_twin(family, **options)
    path = write_gguf(twin, architecture, **said)
    ours = us.load(path, engine=engine)
    assert ours.engine == engine
    twin.assert_equals(ours)
    compare(twin, ours)


@pytest.mark.parametrize("name", CASES)
def test_packed_weights_are_used_as_they_lie(make_twin, write_gguf, name):
    family, options, architecture, said = CASES[name]
    twin = make_twin(family, **options)
    path = write_gguf(twin, architecture, kind="Q8_0", **said)
    ours = us.load(path, weights="stored")
    assert ours.engine == "compiled"
    compare(twin, ours)
    formats = {piece.format.name for part in ours.modules() for piece in getattr(part, "pieces", ())}
    assert formats == {"Q8_0"}


def test_layers_with_a_window_and_without_positions_are_those_that_llama_cpp_knows_of(make_twin, write_gguf):
    found = {}
    for name in ("smollm3", "gemma2", "gemma3"):
        family, options, architecture, said = CASES[name]
        found[name] = gguf_config(open_gguf(write_gguf(make_twin(family, **options), architecture, **said)))
    assert found["smollm3"].unrotated_layers == (3,)
    assert (found["gemma2"].window, found["gemma2"].windowed_layers) == (3, (0,))
    assert found["gemma3"].windowed_layers == (0, 1, 2, 3, 4, 6)
    assert found["gemma3"].window_rotary_base == 10000.0
    assert found["gemma3"].context == 128  # a window is no limit here


SMALL = {"hidden_size": 8, "intermediate_size": 8}


def test_the_largest_gemma_2_divides_scores_by_another_root(make_twin, write_gguf):
    """√(D/H) = √2 instead of √8, with 4 heads of 8 numbers: queries are twice as large."""
    twin = make_twin("Gemma2", num_hidden_layers=46, **SMALL, **CAPS)
    _, state = gguf_weights(open_gguf(write_gguf(twin, "gemma2", **WINDOW | CAPS)))
    theirs = twin.model.model.layers[45].self_attn
    torch.testing.assert_close(state["blocks.45.attention.qkv.weight"][:32], 2 * theirs.q_proj.weight.data)
    torch.testing.assert_close(state["blocks.45.attention.qkv.weight"][32:48], theirs.k_proj.weight.data)


def test_the_largest_gemma_3_does_so_too(make_twin, write_gguf):
    twin = make_twin("Gemma3Text", num_hidden_layers=62, **SMALL)
    _, state = gguf_weights(open_gguf(write_gguf(twin, "gemma3", **WINDOW)))
    theirs = twin.model.model.layers[61].self_attn
    torch.testing.assert_close(
        state["blocks.61.attention.norm.query.weight"], 2 * (1 + theirs.q_norm.weight.data)
    )
    torch.testing.assert_close(state["blocks.61.attention.norm.key.weight"], 1 + theirs.k_norm.weight.data)


def test_what_is_not_followed_is_refused(make_twin, write_gguf):
    longrope = {"rope_factors_long.weight": torch.ones(4), "rope_factors_short.weight": torch.ones(4)}
    with pytest.raises(UnsupportedModelError, match=r"stretched by tables \(longrope\)"):
        gguf_config(open_gguf(write_gguf(make_twin("Phi3"), "phi3", extra=longrope)))
    with pytest.raises(UnsupportedModelError, match=r"rope\.dimension_count is 4; expected 8"):
        gguf_config(open_gguf(write_gguf(make_twin("SmolLM3"), "smollm3", **{"rope.dimension_count": 4})))
    pattern = WINDOW | {"attention.sliding_window_pattern": 3}
    with pytest.raises(UnsupportedModelError, match="sliding_window_pattern is 3; expected 2"):
        gguf_config(open_gguf(write_gguf(make_twin("Gemma2"), "gemma2", **pattern)))
