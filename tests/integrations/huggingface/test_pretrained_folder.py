import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from unspool.integrations.huggingface.loading import load_folder

CPU = torch.device("cpu")


@pytest.mark.parametrize("family", ["mamba", "t5"])
def test_a_folder_says_what_its_model_said(families, family, tmp_path):
    families[family].save_pretrained(tmp_path)
    model = load_folder(tmp_path, CPU, torch.float32)
    said = model.start([[5, 6, 2]])[0].logp_NV
    want = type(model)(families[family], None).start([[5, 6, 2]])[0].logp_NV
    torch.testing.assert_close(said, want)
    assert model.tokenizer is None


def test_numbers_are_as_asked_for(families, tmp_path):
    families["opt"].save_pretrained(tmp_path)
    model = load_folder(tmp_path, CPU, torch.bfloat16)
    assert {it.dtype for it in model.parameters()} == {torch.bfloat16}
    step, _ = model.start([[5, 6]])
    assert step.logp_NV.dtype == torch.float32


def test_no_pickle_is_read_and_no_code_of_a_model_runs(families, tmp_path):
    families["opt"].save_pretrained(tmp_path)
    torch.save({}, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="transformers cannot load this model"):
        load_folder(tmp_path, CPU, torch.float32)
    (tmp_path / "config.json").write_text('{"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}')
    (tmp_path / "own.py").write_text("raise SystemExit")
    with pytest.raises(ValueError, match="transformers cannot load this model"):
        load_folder(tmp_path, CPU, torch.float32)


def test_settings_that_transformers_refuses_are_one_clear_error(families, tmp_path):
    families["opt"].save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"hidden_size": ', '"hidden_size": "many", "was": ', 1))
    with pytest.raises(ValueError, match=r"transformers cannot load this model: .*hidden_size"):
        load_folder(tmp_path, CPU, torch.float32)


def rewritten(folder, change):
    weights = load_file(folder / "model.safetensors")
    save_file(change(weights), folder / "model.safetensors", metadata={"format": "pt"})


def without(part):
    return lambda weights: {name: it for name, it in weights.items() if part not in name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("layers.1.fc1"), r"2 tensors are missing in the weights, .*layers\.1\.fc1\.bias among them"),
        (without("fc1.bias"), r"2 tensors are missing in the weights"),
        (without("layers.1.fc1.bias"), r"1 tensor is missing in the weights"),
        (without(""), r"37 tensors are missing in the weights"),
        (lambda weights: {f"other.{name}": it for name, it in weights.items()}, r"tensors are missing"),
    ],
)
def test_a_folder_without_all_tensors_is_refused_instead_of_run_with_random_ones(
    families, tmp_path, change, message, capfd
):
    families["opt"].save_pretrained(tmp_path)
    capfd.readouterr()
    rewritten(tmp_path, change)
    with pytest.raises(ValueError, match=message) as refused:
        load_folder(tmp_path, CPU, torch.float32)
    assert "\n" not in str(refused.value)
    assert "MISSING" not in capfd.readouterr().err  # their table


def test_tensors_that_are_not_used_are_told(families, tmp_path):
    families["opt"].save_pretrained(tmp_path)
    rewritten(tmp_path, lambda weights: weights | {"model.decoder.extra": torch.ones(2)})
    with pytest.warns(UserWarning, match="1 tensor is not used by this model, model.decoder.extra"):
        load_folder(tmp_path, CPU, torch.float32)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 100),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", {"model_type": "unheard-of"}),
        ("config.json", {"model_type": "vit"}),
        ("config.json", {"model_type": 3}),
        ("config.json", {"num_attention_heads": 0}),
        ("config.json", {"ffn_dim": 48}),
        ("config.json", {"hidden_size": 10**12}),
        ("config.json", {"vocab_size": -5}),
        ("config.json", {"activation_function": "nope"}),
        ("config.json", {"dtype": "nope"}),
        ("config.json", {"quantization_config": {"quant_method": "gptq", "bits": 4}}),
    ],
)
def test_damaged_files_and_wrong_settings_are_one_line(families, tmp_path, file, content):
    families["opt"].save_pretrained(tmp_path)
    path = tmp_path / file
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_text()) | content).encode()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"transformers cannot load this model: \S+ \S+") as refused:
        load_folder(tmp_path, CPU, torch.float32)
    assert "\n" not in str(refused.value)
