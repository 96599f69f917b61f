"""BART, Marian and T5 against transformers, on torch and compiled."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import unspool as us
from unspool.models.loading.config_reader import UnsupportedModelError
from unspool.models.loading.huggingface_folder import read_huggingface_config

ENGINES = ["torch", "compiled"]
CASES = {
    "bart": ("Bart", {}),
    "bart, scaled, by relu": ("Bart", {"scale_embedding": True, "activation_function": "relu"}),
    "bart that begins with its BOS": ("Bart", {"decoder_start_token_id": 0}),
    "marian": ("Marian", {"activation_function": "swish", "scale_embedding": True}),
    "marian by tanh": ("Marian", {"activation_function": "gelu_new"}),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_bart_and_marian_log_probabilities_equal_transformers(make_hf_seq2seq, name, engine):
    family, changes = CASES[name]
    make_hf_seq2seq(family, **changes).assert_equals(engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_bart_and_marian_texts_equal_transformers(make_hf_seq2seq, name, engine):
    family, changes = CASES[name]
    hf = make_hf_seq2seq(family, **changes)
    hf.assert_generates_the_same(engine, us.Greedy(), num_beams=1)
    beam = us.Beam(4, length_penalty=us.Length(1.0), stop=us.decode.Heuristic())
    hf.assert_generates_the_same(engine, beam, num_beams=4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", ["Bart", "Marian"])
def test_forced_and_banned_tokens_of_generate_are_transforms(make_hf_seq2seq, family, engine):
    hf = make_hf_seq2seq(family)
    with torch.no_grad():
        hf.model.final_logits_bias[0, 1] = 6.0  # without the ban, pad is what is said
    hf.model.save_pretrained(hf.folder)
    rules = us.decode.ForcedBOS(9), us.BadWords([[1]]), us.decode.ForcedEOS(12)
    generate_options = {"forced_bos_token_id": 9, "bad_words_ids": [[1]], "forced_eos_token_id": 2}
    hf.assert_generates_the_same(engine, us.Greedy(*rules), num_beams=1, **generate_options)
    beam = us.Beam(4, *rules, length_penalty=us.Length(1.0), stop=us.decode.Heuristic())
    hf.assert_generates_the_same(engine, beam, num_beams=4, **generate_options)


@pytest.mark.parametrize("weights", ["stored", "int8"])
def test_bart_and_marian_with_stored_and_int8_weights(make_hf_seq2seq, weights):
    hf = make_hf_seq2seq("Bart")
    half = {name: it.half() for name, it in load_file(hf.folder / "model.safetensors").items()}
    save_file(half, hf.folder / "model.safetensors", {"format": "pt"})
    hf.assert_equals("compiled", atol=0.05 if weights == "stored" else 0.5, weights=weights)


def rewrite(hf, change):
    path = hf.folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


def test_a_bare_bart_with_embedding_copies_is_read(make_hf_seq2seq):
    """As in the first BART files."""
    hf = make_hf_seq2seq("Bart")
    with torch.no_grad():
        hf.model.final_logits_bias.zero_()

    def old(state):
        bare = {name.removeprefix("model."): it for name, it in state.items() if name != "final_logits_bias"}
        copies = {
            f"{side}.embed_tokens.weight": bare["shared.weight"].clone() for side in ("encoder", "decoder")
        }
        return bare | copies | {"encoder.version": torch.ones(1)}

    rewrite(hf, old)
    hf.assert_equals()
    assert hf.load("torch").head.bias is None


def test_the_embedding_may_be_stored_for_one_side_only(make_hf_seq2seq):
    hf = make_hf_seq2seq("Bart")
    names = {"model.shared.weight": "model.decoder.embed_tokens.weight"}
    rewrite(hf, lambda state: {names.get(name, name): it for name, it in state.items()})
    hf.assert_equals()


def test_stored_marian_positions_are_read(make_hf_seq2seq):
    hf = make_hf_seq2seq("Marian")
    changed = {}
    with torch.no_grad():
        for side in ("encoder", "decoder"):
            table = getattr(hf.model.model, side).embed_positions.weight
            table.mul_(0.5)
            changed[f"model.{side}.embed_positions.weight"] = table.clone()
    rewrite(hf, lambda state: state | changed)
    hf.assert_equals()
    assert hf.load("torch").config.positions == "learned"


def test_an_untied_bart_head_is_read(make_hf_seq2seq):
    hf = make_hf_seq2seq("Bart")
    own = torch.randn(61, 32)
    rewrite(hf, lambda state: state | {"lm_head.weight": own})
    model = hf.load("torch")
    assert not model.config.tied
    assert torch.equal(model.head.weight, own)


def test_bos_and_eos_come_from_generation_config(make_hf_seq2seq):
    hf = make_hf_seq2seq("Bart")
    path = hf.folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder_start_token_id": 8}))
    assert hf.load("torch").ends.bos == 8


def reconfigured(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: it for key, it in config.items() if it != "absent"}))


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("Bart", {"activation_function": "mish"}, "activation_function 'mish' is unknown; known are gelu"),
        ("Bart", {"decoder_ffn_dim": 8}, "encoder_ffn_dim is 40 and decoder_ffn_dim is 8; only equal sizes"),
        ("Bart", {"is_encoder_decoder": False}, "is_encoder_decoder is False; only True"),
        ("Bart", {"eos_token_id": [2, 3]}, r"eos_token_id is \[2, 3\]; only one token is supported"),
        ("Marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings is False"),
        ("Marian", {"decoder_vocab_size": 9}, "decoder_vocab_size is 9; only 61"),
    ],
)
def test_unsupported_bart_options_are_named(make_hf_seq2seq, family, changes, message):
    hf = make_hf_seq2seq(family)
    (hf.folder / "generation_config.json").unlink()
    reconfigured(hf.folder, **changes)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        read_huggingface_config(hf.folder)
    assert str(hf.folder / "config.json") in str(caught.value)


@pytest.mark.parametrize("token", ["x", True, -4, [2, "x"], 1.0])
def test_wrong_token_ids_are_rejected(make_hf_seq2seq, token):
    hf = make_hf_seq2seq("Bart")
    (hf.folder / "generation_config.json").unlink()
    reconfigured(hf.folder, eos_token_id=token)
    with pytest.raises(ValueError, match=r"config\.json: eos_token_id is .*; expected the id of a token"):
        us.load(hf.folder)


def test_wrong_seq2seq_folders_are_rejected(make_hf_seq2seq):
    hf = make_hf_seq2seq("Marian")
    reconfigured(hf.folder, decoder_start_token_id="absent", bos_token_id="absent")
    assert read_huggingface_config(hf.folder)[0].bos == 1  # of generation_config.json
    reconfigured(hf.folder, encoder_attention_heads=5, decoder_attention_heads=5)
    with pytest.raises(ValueError, match="the width 32 is not a multiple of 5 heads"):
        us.load(hf.folder)
    reconfigured(hf.folder, encoder_attention_heads=4, decoder_attention_heads=4, decoder_layers=2**31 - 1)
    with pytest.raises(ValueError, match="decoder_layers=2147483647, but the file holds 112 tensors"):
        us.load(hf.folder)
    reconfigured(hf.folder, decoder_layers=3, decoder_start_token_id=61)
    (hf.folder / "generation_config.json").unlink()
    with pytest.raises(ValueError, match=r"token 61 is outside the vocabulary 0…60"):
        us.load(hf.folder)


T5_CASES = {
    "first version": {},
    "gated": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "gated by silu": {"feed_forward_proj": "gated-silu"},
    "plain gelu": {"feed_forward_proj": "gelu", "relative_attention_num_buckets": 4},
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", T5_CASES)
def test_t5_log_probabilities_equal_transformers(make_hf_seq2seq, name, engine):
    make_hf_seq2seq("T5", **T5_CASES[name]).assert_equals(engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", T5_CASES)
def test_t5_texts_equal_transformers(make_hf_seq2seq, name, engine):
    hf = make_hf_seq2seq("T5", **T5_CASES[name])
    assert us.load(hf.folder).engine == "compiled"
    hf.assert_generates_the_same(engine, us.Greedy(), num_beams=1)
    beam = us.Beam(4, length_penalty=us.Length(1.0), stop=us.decode.Heuristic())
    hf.assert_generates_the_same(engine, beam, num_beams=4)


def test_an_untied_t5_head_is_read(make_hf_seq2seq, transformers):
    """As in files of version 1.1."""
    hf = make_hf_seq2seq("T5", **T5_CASES["gated"])
    own = torch.nn.Linear(32, 61, bias=False)
    hf.model.lm_head = own
    state = {name: it.clone() for name, it in hf.model.state_dict().items() if "embed_tokens" not in name}
    hf.model.save_pretrained(hf.folder, state_dict=state)
    again = transformers.T5ForConditionalGeneration.from_pretrained(hf.folder).eval()
    assert torch.equal(again.lm_head.weight, own.weight)
    type(hf)(again, hf.tokenizer, hf.folder).assert_equals("torch")
    assert not hf.load("torch").config.tied


@pytest.mark.parametrize(("weights", "atol"), [("stored", 0.05), ("int8", 0.5)])
def test_t5_with_stored_and_int8_weights(make_hf_seq2seq, weights, atol):
    """Queries are scaled by √I, so they are int8 in both formats."""
    make_hf_seq2seq("T5").assert_equals("compiled", atol=atol, weights=weights)


def test_unsupported_t5_options_are_named(make_hf_seq2seq):
    hf = make_hf_seq2seq("T5")
    reconfigured(hf.folder, feed_forward_proj="gated-relu")
    with pytest.raises(
        UnsupportedModelError, match="feed_forward_proj 'gated-relu' is unknown; known are relu"
    ):
        read_huggingface_config(hf.folder)
    reconfigured(hf.folder, feed_forward_proj="relu", dense_act_fn="tanh")
    with pytest.raises(UnsupportedModelError, match="dense_act_fn is 'tanh'; only 'relu' is supported"):
        read_huggingface_config(hf.folder)
    reconfigured(hf.folder, dense_act_fn="relu", relative_attention_max_distance=4)
    with pytest.raises(ValueError, match="relative_distance=4 must be more than half of relative_buckets=8"):
        read_huggingface_config(hf.folder)
    (hf.folder / "generation_config.json").unlink()
    reconfigured(hf.folder, decoder_start_token_id="absent", bos_token_id="absent")
    with pytest.raises(
        ValueError, match="decoder_start_token_id is missing; expected the decoder's first token id"
    ):
        read_huggingface_config(hf.folder)


@pytest.fixture
def bart(make_hf_seq2seq):
    return make_hf_seq2seq("Bart")


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
        (lambda state: state | {"more.weight": torch.zeros(2)}, "unexpected tensors more.weight"),
        (lambda state: state | {QKV: torch.full((32, 32), torch.nan)}, "holds NaN or infinity"),
        (
            lambda state: state | {"model.encoder.embed_positions.weight": torch.zeros(48, 32)},
            r"has shape \[48, 32\]; the configuration asks for \[50, 32\]",
        ),
    ],
)
def test_damaged_seq2seq_weights_are_rejected(bart, change, message):
    rewrite(bart, change)
    with pytest.raises(ValueError, match=message):
        us.load(bart.folder)


def test_separate_embeddings_are_run_by_transformers(bart):
    other = {"model.encoder.embed_tokens.weight": torch.randn(61, 32)}
    rewrite(bart, lambda state: state | other)
    with pytest.warns(
        UserWarning, match="only one embedding for both sides is supported.*Running it on transformers"
    ):
        assert us.load(bart.folder).engine == "transformers"


@pytest.mark.parametrize("family", ["mbart", "pegasus"])
def test_unknown_seq2seq_families_are_run_by_transformers_with_a_warning(transformers, tmp_path, family):
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
def test_seq2seq_models_round_trip_through_a_run_folder(make_hf_seq2seq, tmp_path, family):
    ours = make_hf_seq2seq(family).load("torch")
    us.save(ours, tmp_path / "saved")
    again = us.load(tmp_path / "saved", engine="torch")
    assert again.config == ours.config
    tokens = torch.tensor([[2, 5, 6]])
    with torch.no_grad():
        want = ours(tokens, torch.tensor([3]), tokens)
        assert torch.equal(again(tokens, torch.tensor([3]), tokens), want)
    written = [us.generate(it, "w7 w8", us.Greedy(), max_new_tokens=5).text for it in (ours, again)]
    assert written[0] == written[1] != ""


def test_a_seq2seq_tokenizer_with_too_many_tokens_is_rejected(bart):
    path = bart.folder / "tokenizer.json"
    generate_options = json.loads(path.read_text())
    generate_options["model"]["vocab"] |= {f"more{n}": 61 + n for n in range(9)}
    path.write_text(json.dumps(generate_options))
    with pytest.raises(ValueError, match="the tokenizer has 70 tokens, the model only 61"):
        us.load(bart.folder)
