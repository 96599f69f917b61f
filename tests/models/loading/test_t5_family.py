"""T5 beside transformers' own class, of its first version and of 1.1."""

import json

import pytest
import torch

import unspool as us
from unspool.engine.engine_choice import ENGINES
from unspool.models.loading.config_reader import UnsupportedModelError
from unspool.models.loading.huggingface_folder import huggingface_config

CASES = {
    "first version": {},
    "gated": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "gated by silu": {"feed_forward_proj": "gated-silu"},
    "plain gelu": {"feed_forward_proj": "gelu", "relative_attention_num_buckets": 4},
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_log_probabilities_are_those_of_transformers(make_translator, name, engine):
    make_translator("T5", **CASES[name]).assert_equals(engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_greedy_and_a_beam_write_what_their_generate_does(make_translator, name, engine):
    twin = make_translator("T5", **CASES[name])
    assert us.load(twin.folder).engine == "compiled"
    twin.assert_writes_the_same(engine, us.Greedy(), num_beams=1)
    beam = us.Beam(4, length_penalty=us.Length(1.0), stop=us.decode.Heuristic())
    twin.assert_writes_the_same(engine, beam, num_beams=4)


def test_a_head_of_its_own_is_read_as_transformers_reads_it(make_translator, transformers):
    """As the files of version 1.1 have it."""
    twin = make_translator("T5", **CASES["gated"])
    own = torch.nn.Linear(32, 61, bias=False)
    twin.model.lm_head = own
    state = {name: it.clone() for name, it in twin.model.state_dict().items() if "embed_tokens" not in name}
    twin.model.save_pretrained(twin.folder, state_dict=state)
    again = transformers.T5ForConditionalGeneration.from_pretrained(twin.folder).eval()
    assert torch.equal(again.lm_head.weight, own.weight)
    type(twin)(again, twin.tokenizer, twin.folder).assert_equals("torch")
    assert not twin.load("torch").config.tied


@pytest.mark.parametrize(("weights", "atol"), [("stored", 0.05), ("int8", 0.5)])
def test_weights_may_stay_as_they_are_stored(make_translator, weights, atol):
    """Queries, which are multiplied by √I, are int8 in either way."""
    make_translator("T5").assert_equals("compiled", atol=atol, weights=weights)


def reconfigured(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: it for key, it in config.items() if it != "absent"}))


def test_what_our_model_cannot_be_is_left_to_transformers(make_translator):
    twin = make_translator("T5")
    reconfigured(twin.folder, feed_forward_proj="gated-relu")
    with pytest.raises(
        UnsupportedModelError, match="feed_forward_proj 'gated-relu' is unknown; known are relu"
    ):
        huggingface_config(twin.folder)
    reconfigured(twin.folder, feed_forward_proj="relu", dense_act_fn="tanh")
    with pytest.raises(UnsupportedModelError, match="dense_act_fn is 'tanh'; expected 'relu'"):
        huggingface_config(twin.folder)
    reconfigured(twin.folder, dense_act_fn="relu", relative_attention_max_distance=4)
    with pytest.raises(ValueError, match="relative_buckets=8 and relative_distance=4 cannot be"):
        huggingface_config(twin.folder)
    (twin.folder / "generation_config.json").unlink()
    reconfigured(twin.folder, decoder_start_token_id="absent", bos_token_id="absent")
    with pytest.raises(ValueError, match="decoder_start_token_id is missing; expected the id of the token"):
        huggingface_config(twin.folder)
