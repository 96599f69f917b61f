import json
import subprocess
import sys
from dataclasses import replace

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import models

from unspool.engine.weight_formats import F16
from unspool.models.loading import assembly, weights
from unspool.models.loading.run_folder import is_run_folder, load_folder, save
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.nn.positions import RotaryScaling
from unspool.tokenization.tokenizer import Tokenizer

CONFIG = TransformerConfig(
    vocab_size=7, width=8, layers=2, heads=2, kv_heads=1, head_width=4, inner_width=10, context=16
)
GPT2 = replace(CONFIG, norm="layer", positions="learned", activation="gelu_tanh", bias=True, tied=False)
SCALED = replace(CONFIG, rotary_scaling=RotaryScaling(8.0, 1.0, 4.0, 16), rotary_base=500.0, norm_eps=1e-6)
TOKENS = torch.tensor([[1, 2, 3, 4]])


def model(config=CONFIG, text=None):
    torch.manual_seed(3)
    return TransformerLM(config, text).eval()


def words():
    return Tokenizer(
        tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")),
        eos_ids=frozenset({1}),
    )


@pytest.fixture
def saved(tmp_path):
    save(model(), tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("config", [CONFIG, GPT2, SCALED])
def test_a_run_folder_round_trips(tmp_path, config):
    made = model(config)
    save(made, tmp_path / "run")
    loaded = load_folder(tmp_path / "run")
    assert loaded.config == config
    assert loaded.tokenizer is None
    assert not loaded.training
    torch.testing.assert_close(loaded(TOKENS), made(TOKENS), rtol=0, atol=0)


def test_the_tokenizer_is_saved_with_the_model(tmp_path):
    save(model(text=words()), tmp_path / "run")
    text = load_folder(tmp_path / "run").tokenizer
    assert text.encode("b") == [1]
    assert text.eos_ids == {1}


def test_training_a_loaded_model_does_not_change_the_file(saved):
    before = (saved / "model.safetensors").read_bytes()
    loaded = load_folder(saved)
    optimizer = torch.optim.SGD(loaded.parameters(), lr=1.0)
    loaded(TOKENS).sum().backward()
    optimizer.step()
    assert (saved / "model.safetensors").read_bytes() == before
    assert not torch.equal(loaded.embed.weight, load_folder(saved).embed.weight)


def test_saving_replaces_a_saved_model(saved):
    save(model(replace(CONFIG, layers=1)), saved)
    assert load_folder(saved).config.layers == 1


def test_a_folder_set_aside_by_an_interrupted_replacement_is_found(saved):
    saved.rename(saved.with_name(".run.unspool-previous"))
    assert is_run_folder(saved)
    assert load_folder(saved).config == CONFIG


def test_is_run_folder(saved, tmp_path):
    assert is_run_folder(saved)
    assert not is_run_folder(tmp_path)
    assert not is_run_folder(tmp_path / "absent")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert not is_run_folder(tmp_path)


def edit(folder, change):
    path = folder / "config.json"
    described = json.loads(path.read_text())
    change(described)
    path.write_text(json.dumps(described))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(confg=1), r"'confg' is not a known key: did you mean 'config'\?"),
        (lambda d: d["config"].update(layer=3), r"'layer' .* key of \[config\]: did you mean 'layers'\?"),
        (lambda d: d.update(version=2), "format 'unspool' 2 cannot be read; expected 'unspool' 1"),
        (lambda d: d["config"].update(kind="transformer_ml"), r"did you mean 'transformer_lm'"),
        (lambda d: d.update(config=3), "config must be a table, found 3"),
        (lambda d: d["config"].pop("width"), r"\[config\] lacks 'width'"),
        (lambda d: d["config"].update(width="wide"), r"config\.width is 'wide', but must be of type int"),
        (lambda d: d["config"].update(width=True), r"config\.width is True, but must be of type int"),
        (lambda d: d["config"].update(width=1.5), r"config\.width is 1\.5, but must be of type int"),
        (lambda d: d["config"].update(tied=1), r"config\.tied is 1, but must be of type bool"),
        (lambda d: d["config"].update(norm_eps="x"), r"config\.norm_eps is 'x', but must be of type float"),
        (lambda d: d["config"].update(norm=1), "'1' is not a known value of config.norm"),
        (
            lambda d: d["config"].update(norm="batch"),
            "'batch' is not a known value of config.norm: choose from layer, rms",
        ),
        (
            lambda d: d["config"].update(rotary_scaling=1),
            r"config\.rotary_scaling is 1, but must be of type RotaryScaling",
        ),
        (
            lambda d: d["config"].update(rotary_scaling={"facto": 1}),
            r"'facto' .* \[config\.rotary_scaling\]: did you mean 'factor'\?",
        ),
    ],
)
def test_wrong_run_configurations_are_rejected(saved, change, message):
    edit(saved, change)
    with pytest.raises(ValueError, match=message) as caught:
        load_folder(saved)
    assert str(saved / "config.json") in str(caught.value)


def test_fields_with_a_default_may_be_absent(saved):
    edit(saved, lambda described: [described["config"].pop(name) for name in ("norm", "tied", "dropout")])
    assert load_folder(saved).config == CONFIG


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("norm.weight"), r"tensor 'norm\.weight' .* is missing"),
        (lambda state: state.update(extra=torch.ones(1)), "unexpected tensors extra"),
        (
            lambda state: state["norm.weight"].fill_(torch.nan),
            r"'norm\.weight' holds NaN or infinity: the file is damaged, or training diverged",
        ),
    ],
)
def test_wrong_weights_are_rejected(saved, change, message):
    state = {name: tensor.clone() for name, tensor in load_file(saved / "model.safetensors").items()}
    change(state)
    save_file(state, saved / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        load_folder(saved)


def test_half_precision_weights_become_float32(tmp_path):
    save(model().half(), tmp_path / "run")
    assert {parameter.dtype for parameter in load_folder(tmp_path / "run").parameters()} == {torch.float32}


def test_half_precision_weights_stay_stored(tmp_path):
    half = model().half()
    save(half, tmp_path / "run")
    loaded = load_folder(tmp_path / "run", "stored")
    assert loaded.embed.pieces[0].format == F16
    assert {tensor.dtype for tensor in loaded.state_dict().values()} == {torch.float32}
    want = half.float()
    with torch.no_grad():
        torch.testing.assert_close(loaded(torch.tensor([[1, 2, 3]])), want(torch.tensor([[1, 2, 3]])))


@pytest.mark.parametrize("small", [0, assembly.MAX_COPIED_WEIGHTS])
def test_copied_and_mapped_weights_are_equal(saved, monkeypatch, small):
    copied = []
    monkeypatch.setattr(assembly, "MAX_COPIED_WEIGHTS", small)
    empty = weights.WEIGHT_MEMORY.empty
    monkeypatch.setattr(weights.WEIGHT_MEMORY, "empty", lambda shape: copied.append(shape) or empty(shape))
    state = load_folder(saved).state_dict()
    assert all(torch.equal(state[name], weight) for name, weight in model().state_dict().items())
    assert any(len(shape) == 2 for shape in copied) == bool(small)


def test_stored_float32_is_float32(saved):
    loaded = load_folder(saved, "stored")
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert loaded.state_dict().keys() == load_folder(saved).state_dict().keys()


def test_a_failed_save_leaves_no_files(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr("unspool.models.loading.run_folder.write_safetensors", fail)
    with pytest.raises(OSError, match="disk full"):
        save(model(), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("weights", ["float32", "stored", "int8"])
@pytest.mark.parametrize("shape", [(0,), (0, 8), ()])
def test_empty_tensors_are_rejected(saved, weights, shape):
    remaining = load_file(saved / "model.safetensors")
    for name in remaining:
        save_file({**remaining, name: torch.zeros(shape)}, saved / "model.safetensors")
        with pytest.raises(ValueError, match=rf"tensor '{name}' has shape .* the configuration asks for"):
            load_folder(saved, weights)


def test_truncating_the_file_of_an_int8_model_is_safe(tmp_path):
    learned = replace(
        CONFIG, positions="learned", kv_heads=2, context=4096
    )  # a large matrix that is not packed
    save(TransformerLM(learned), tmp_path / "run")
    program = """
import os, sys
import unspool as us
model = us.load(sys.argv[1], weights="int8")
os.truncate(os.path.join(sys.argv[1], "model.safetensors"), 100)
print(len(us.generate(model, list(range(1, 7)) * 300, us.Greedy(), max_new_tokens=3).tokens))
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "run"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
