import pytest
import torch

import unspool as us
from unspool.integrations.vllm.served_model import ServedModel
from unspool.models.loading.model_names import package_file


def test_matrix_and_tokenizer_are_those_of_the_folder_that_the_configuration_names(config, model):
    served = ServedModel(config)
    assert torch.equal(served.output_matrix, model.output_matrix)
    assert served.tokenizer.encode("In the beginning") == model.tokenizer.encode("In the beginning")
    assert (served.vocab_size, served.context) == (2048, 256)


def test_the_matrix_is_rounded_as_vllm_rounds_it(engine, folder, model):
    served = ServedModel(engine.served(folder, dtype=torch.bfloat16))
    assert served.output_matrix.dtype == torch.float32
    assert torch.equal(served.output_matrix, model.output_matrix.bfloat16().float())


def test_a_gguf_file_is_read_as_one(engine):
    path = package_file("smollm2")
    served = ServedModel(engine.served(path, get_vocab_size=lambda: 49152))
    assert served.output_matrix.shape == (49152, 576)
    assert served.tokenizer.decode(served.tokenizer.encode("Once upon a time")) == "Once upon a time"


def test_files_of_another_vocabulary_are_refused_with_both_sizes(engine, folder):
    served = ServedModel(engine.served(folder, get_vocab_size=lambda: 2000))
    with pytest.raises(ValueError, match=r"has 2048 rows, and vLLM's logits have 2000 columns"):
        served.output_matrix  # noqa: B018
    with pytest.raises(ValueError, match="knows 2048 tokens, and vLLM's model only 2000"):
        served.tokenizer  # noqa: B018


def test_a_hub_id_is_asked_for_in_the_revision_that_vllm_has(engine, folder, monkeypatch):
    from unspool.integrations.vllm import served_model

    asked = []
    monkeypatch.setattr(served_model, "hub_folder", lambda *said: asked.append(said) or folder)
    config = engine.served("org/name", revision="v2", tokenizer="org/words", tokenizer_revision="v3")
    assert ServedModel(config).output_matrix is not None
    assert ServedModel(config).tokenizer is not None
    assert asked == [("org/name", "v2"), ("org/words", "v3")]


def test_it_is_run_by_vllm_alone(config):
    with pytest.raises(NotImplementedError, match="run by vLLM"):
        us.generate(ServedModel(config), "In the beginning", us.Greedy())
    with pytest.raises(NotImplementedError, match="run by vLLM"):
        ServedModel(config).step(None, torch.tensor([1]))
