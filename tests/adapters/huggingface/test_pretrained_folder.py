import pytest
import torch

from unspool.adapters.huggingface.pretrained_folder import load_folder

CPU = torch.device("cpu")


@pytest.mark.parametrize("family", ["mamba", "t5"])
def test_a_folder_says_what_its_model_said(families, family, tmp_path):
    families[family].save_pretrained(tmp_path)
    model = load_folder(tmp_path, CPU, torch.float32)
    said = model.start([[5, 6, 2]])[0].logp_NV
    want = type(model)(families[family], None).start([[5, 6, 2]])[0].logp_NV
    torch.testing.assert_close(said, want)
    assert model.text is None


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
