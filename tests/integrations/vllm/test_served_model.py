import pytest
import torch

import unspool as us
from unspool.integrations.vllm.served_model import ServedModel
from unspool.models.loading.model_names import package_file


def test_output_matrix_and_tokenizer_of_the_configured_folder(config, model):
    served = ServedModel(config)
    assert torch.equal(served.output_matrix, model.output_matrix)
    assert served.tokenizer.encode("In the beginning") == model.tokenizer.encode("In the beginning")
    assert (served.vocab_size, served.context) == (2048, 256)


def test_output_matrix_has_vllms_dtype(engine, folder, model):
    served = ServedModel(engine.served(folder, dtype=torch.bfloat16))
    assert served.output_matrix.dtype == torch.float32
    assert torch.equal(served.output_matrix, model.output_matrix.bfloat16().float())


def test_gguf_files_are_supported(engine):
    path = package_file("smollm2")
    served = ServedModel(engine.served(path, get_vocab_size=lambda: 49152))
    assert served.output_matrix.shape == (49152, 576)
    assert served.tokenizer.decode(served.tokenizer.encode("Once upon a time")) == "Once upon a time"


def test_files_with_another_vocabulary_are_rejected(engine, folder):
    served = ServedModel(engine.served(folder, get_vocab_size=lambda: 2000))
    with pytest.raises(ValueError, match=r"has 2048 rows, but vLLM's logits have 2000 columns"):
        served.output_matrix  # noqa: B018
    with pytest.raises(ValueError, match="has 2048 tokens, vLLM's model only 2000"):
        served.tokenizer  # noqa: B018


def test_hub_ids_use_vllms_revision(engine, folder, monkeypatch):
    from unspool.integrations.vllm import served_model

    requested = []
    monkeypatch.setattr(served_model, "hub_folder", lambda *arguments: requested.append(arguments) or folder)
    config = engine.served("org/name", revision="v2", tokenizer="org/words", tokenizer_revision="v3")
    assert ServedModel(config).output_matrix is not None
    assert ServedModel(config).tokenizer is not None
    assert requested == [("org/name", "v2"), ("org/words", "v3")]


def test_served_model_cannot_be_run(config):
    with pytest.raises(NotImplementedError, match="vLLM runs the model"):
        us.generate(ServedModel(config), "In the beginning", us.Greedy())
    with pytest.raises(NotImplementedError, match="vLLM runs the model"):
        ServedModel(config).step(None, torch.tensor([1]))
