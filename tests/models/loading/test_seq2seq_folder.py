import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import unspool as us


@pytest.fixture
def bart(make_translator):
    return make_translator("Bart")


def rewrite(twin, change):
    path = twin.folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


QKV = "model.encoder.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda state: {name: it for name, it in state.items() if name != QKV},
            r"tensor 'model\.encoder\.layers\.1\.self_attn\.q_proj\.weight' of shape \[32, 32\] is missing",
        ),
        (
            lambda state: state | {QKV: torch.zeros(32, 31)},
            r"has shape \[32, 31\]; the configuration asks for",
        ),
        (
            lambda state: state | {"final_logits_bias": torch.zeros(61)},
            r"'final_logits_bias' has shape \[61\]",
        ),
        (lambda state: state | {"more.weight": torch.zeros(2)}, "tensors without a place .* more.weight"),
        (lambda state: state | {QKV: torch.full((32, 32), torch.nan)}, "holds NaN or infinity"),
        (
            lambda state: state | {"model.encoder.embed_positions.weight": torch.zeros(48, 32)},
            r"has shape \[48, 32\]; the configuration asks for \[50, 32\]",
        ),
    ],
)
def test_a_damaged_folder_is_one_clear_error(bart, change, message):
    rewrite(bart, change)
    with pytest.raises(ValueError, match=message):
        us.load(bart.folder)


def test_sides_with_embeddings_of_their_own_are_run_by_transformers(bart):
    other = {"model.encoder.embed_tokens.weight": torch.randn(61, 32)}
    rewrite(bart, lambda state: state | other)
    with pytest.warns(UserWarning, match="expected one embedding for both sides.*So transformers runs it"):
        assert us.load(bart.folder).engine == "transformers"


@pytest.mark.parametrize("family", ["mbart", "pegasus"])
def test_a_family_that_is_not_ours_falls_through_and_says_so(transformers, tmp_path, family):
    kind = {"mbart": "MBart", "pegasus": "Pegasus"}[family]
    sizes = {f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=61, d_model=8, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=16, **sizes,
        bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2,
    )  # fmt: skip
    getattr(transformers, f"{kind}ForConditionalGeneration")(config).save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=f"model_type '{family}' is unknown; known are bart, "):
        assert us.load(tmp_path).engine == "transformers"


@pytest.mark.parametrize("family", ["Bart", "Marian"])
def test_it_is_saved_in_our_format_and_says_the_same(make_translator, tmp_path, family):
    ours = make_translator(family).load("torch")
    us.save(ours, tmp_path / "saved")
    again = us.load(tmp_path / "saved", engine="torch")
    assert again.config == ours.config
    tokens = torch.tensor([[2, 5, 6]])
    with torch.no_grad():
        want = ours(tokens, torch.tensor([3]), tokens)
        assert torch.equal(again(tokens, torch.tensor([3]), tokens), want)
    written = [us.generate(it, "w7 w8", us.Greedy(), max_new_tokens=5).text for it in (ours, again)]
    assert written[0] == written[1] != ""


def test_the_tokenizer_must_be_the_models_own(bart):
    path = bart.folder / "tokenizer.json"
    said = json.loads(path.read_text())
    said["model"]["vocab"] |= {f"more{n}": 61 + n for n in range(9)}
    path.write_text(json.dumps(said))
    with pytest.raises(ValueError, match="the tokenizer knows 70 tokens, the model only 61"):
        us.load(bart.folder)
