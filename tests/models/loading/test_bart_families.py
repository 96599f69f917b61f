"""BART and Marian beside transformers' own classes, by torch and compiled."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import unspool as us
from unspool.models.loading.config_reader import UnsupportedModelError
from unspool.models.loading.huggingface_folder import huggingface_config

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
def test_log_probabilities_are_those_of_transformers(make_translator, name, engine):
    family, changes = CASES[name]
    make_translator(family, **changes).assert_equals(engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_greedy_and_a_beam_write_what_their_generate_does(make_translator, name, engine):
    family, changes = CASES[name]
    twin = make_translator(family, **changes)
    twin.assert_writes_the_same(engine, us.Greedy(), num_beams=1)
    beam = us.Beam(4, length_penalty=us.Length(1.0), stop=us.decode.Heuristic())
    twin.assert_writes_the_same(engine, beam, num_beams=4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", ["Bart", "Marian"])
def test_what_generate_forces_and_forbids_are_transforms(make_translator, family, engine):
    twin = make_translator(family)
    with torch.no_grad():
        twin.model.final_logits_bias[0, 1] = 6.0  # without the ban, pad is what is said
    twin.model.save_pretrained(twin.folder)
    rules = us.decode.ForcedBOS(9), us.BadWords([[1]]), us.decode.ForcedEOS(12)
    said = {"forced_bos_token_id": 9, "bad_words_ids": [[1]], "forced_eos_token_id": 2}
    twin.assert_writes_the_same(engine, us.Greedy(*rules), num_beams=1, **said)
    beam = us.Beam(4, *rules, length_penalty=us.Length(1.0), stop=us.decode.Heuristic())
    twin.assert_writes_the_same(engine, beam, num_beams=4, **said)


@pytest.mark.parametrize("weights", ["stored", "int8"])
def test_weights_may_stay_as_they_are_stored(make_translator, weights):
    twin = make_translator("Bart")
    half = {name: it.half() for name, it in load_file(twin.folder / "model.safetensors").items()}
    save_file(half, twin.folder / "model.safetensors", {"format": "pt"})
    twin.assert_equals("compiled", atol=0.05 if weights == "stored" else 0.5, weights=weights)


def rewrite(twin, change):
    path = twin.folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


def test_a_bare_bart_and_copies_of_its_embedding_are_read(make_translator):
    """As the first files of BART have them."""
    twin = make_translator("Bart")
    with torch.no_grad():
        twin.model.final_logits_bias.zero_()

    def old(state):
        bare = {name.removeprefix("model."): it for name, it in state.items() if name != "final_logits_bias"}
        copies = {
            f"{side}.embed_tokens.weight": bare["shared.weight"].clone() for side in ("encoder", "decoder")
        }
        return bare | copies | {"encoder.version": torch.ones(1)}

    rewrite(twin, old)
    twin.assert_equals()
    assert twin.load("torch").head.bias is None


def test_the_embedding_may_stand_under_the_name_of_one_side_only(make_translator):
    twin = make_translator("Bart")
    names = {"model.shared.weight": "model.decoder.embed_tokens.weight"}
    rewrite(twin, lambda state: {names.get(name, name): it for name, it in state.items()})
    twin.assert_equals()


def test_waves_that_marian_has_written_down_are_read(make_translator):
    twin = make_translator("Marian")
    changed = {}
    with torch.no_grad():
        for side in ("encoder", "decoder"):
            table = getattr(twin.model.model, side).embed_positions.weight
            table.mul_(0.5)
            changed[f"model.{side}.embed_positions.weight"] = table.clone()
    rewrite(twin, lambda state: state | changed)
    twin.assert_equals()
    assert twin.load("torch").config.positions == "learned"


def test_a_head_of_its_own_is_read(make_translator):
    twin = make_translator("Bart")
    own = torch.randn(61, 32)
    rewrite(twin, lambda state: state | {"lm_head.weight": own})
    model = twin.load("torch")
    assert not model.config.tied
    assert torch.equal(model.head.weight, own)


def test_a_text_begins_and_ends_as_the_settings_of_generate_say(make_translator):
    twin = make_translator("Bart")
    path = twin.folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder_start_token_id": 8}))
    assert twin.load("torch").ends.bos == 8


def reconfigured(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: it for key, it in config.items() if it != "absent"}))


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("Bart", {"activation_function": "mish"}, "activation_function 'mish' is unknown; known are gelu"),
        ("Bart", {"decoder_ffn_dim": 8}, "encoder_ffn_dim is 40 and decoder_ffn_dim 8; expected the same"),
        ("Bart", {"is_encoder_decoder": False}, "is_encoder_decoder is False; expected True"),
        ("Bart", {"eos_token_id": [2, 3]}, r"eos_token_id is \[2, 3\]; expected one token, the only"),
        ("Marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings is False"),
        ("Marian", {"decoder_vocab_size": 9}, "decoder_vocab_size is 9; expected 61"),
    ],
)
def test_what_our_model_cannot_be_is_left_to_transformers(make_translator, family, changes, message):
    twin = make_translator(family)
    (twin.folder / "generation_config.json").unlink()
    reconfigured(twin.folder, **changes)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        huggingface_config(twin.folder)
    assert str(twin.folder / "config.json") in str(caught.value)


@pytest.mark.parametrize("token", ["x", True, -4, [2, "x"], 1.0])
def test_what_is_no_token_is_one_clear_error(make_translator, token):
    twin = make_translator("Bart")
    (twin.folder / "generation_config.json").unlink()
    reconfigured(twin.folder, eos_token_id=token)
    with pytest.raises(ValueError, match=r"config\.json: eos_token_id is .*; expected the id of a token"):
        us.load(twin.folder)


def test_what_is_wrong_is_one_clear_error(make_translator):
    twin = make_translator("Marian")
    reconfigured(twin.folder, decoder_start_token_id="absent", bos_token_id="absent")
    assert huggingface_config(twin.folder).bos == 1  # of generation_config.json
    reconfigured(twin.folder, encoder_attention_heads=5, decoder_attention_heads=5)
    with pytest.raises(ValueError, match="a width of 32 cannot be shared by 5 heads"):
        us.load(twin.folder)
    reconfigured(twin.folder, encoder_attention_heads=4, decoder_attention_heads=4, decoder_layers=2**31 - 1)
    with pytest.raises(ValueError, match=r"'model\.decoder\.layers\.3\..*' of shape .* is missing"):
        us.load(twin.folder)
    reconfigured(twin.folder, decoder_layers=3, decoder_start_token_id=61)
    (twin.folder / "generation_config.json").unlink()
    with pytest.raises(ValueError, match=r"token 61 is outside the vocabulary 0…60"):
        us.load(twin.folder)
