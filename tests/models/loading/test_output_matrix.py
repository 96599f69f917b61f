import json

import pytest
import torch
from safetensors.torch import save_file

from unspool.models.loading.gguf_file import open_gguf
from unspool.models.loading.model_names import package_file
from unspool.models.loading.output_matrix import output_matrix_of_folder, output_matrix_of_gguf

EMBED, HEAD = torch.arange(6.0).view(3, 2), -torch.arange(6.0).view(3, 2)


def folder_of(path, settings, **tensors):
    (path / "config.json").write_text(json.dumps(settings))
    save_file(
        {name.replace("__", "."): tensor.clone() for name, tensor in tensors.items()},
        path / "model.safetensors",
    )
    return path


@pytest.mark.parametrize(
    ("settings", "tensors", "wanted"),
    [
        ({}, {"model__embed_tokens__weight": EMBED, "lm_head__weight": HEAD}, HEAD),
        ({}, {"transformer__wte__weight": EMBED, "transformer__wpe__weight": HEAD}, EMBED),
        (
            {"tie_word_embeddings": True},
            {"model__embed_tokens__weight": EMBED, "lm_head__weight": HEAD},
            EMBED,
        ),
        (
            {"tie_word_embeddings": False},
            {"gpt_neox__embed_in__weight": EMBED, "embed_out__weight": HEAD},
            HEAD,
        ),
        (
            {"text_config": {"tie_word_embeddings": True}},
            {"a__embed_tokens__weight": EMBED, "lm_head__weight": HEAD},
            EMBED,
        ),
        ({"final_logit_softcapping": 30.0}, {"model__embed_tokens__weight": EMBED}, None),
        ({"text_config": {"final_logit_softcapping": 30.0}}, {"model__embed_tokens__weight": EMBED}, None),
    ],
)
def test_output_matrix_of_a_folder(settings, tensors, wanted, tmp_path):
    matrix = output_matrix_of_folder(folder_of(tmp_path, settings, **tensors))
    assert (matrix is None) if wanted is None else torch.equal(matrix, wanted)


@pytest.mark.parametrize(
    "tensors",
    [{"other__weight": EMBED}, {"a__lm_head__weight": EMBED, "b__lm_head__weight": HEAD}],
)
def test_missing_or_ambiguous_output_matrices_are_reported(tensors, tmp_path):
    with pytest.raises(ValueError, match=r"expected one output matrix, named lm_head\.weight"):
        output_matrix_of_folder(folder_of(tmp_path, {}, **tensors))


def test_output_matrix_of_a_gguf_file():
    file = open_gguf(package_file("smollm2"))
    assert output_matrix_of_gguf(file).shape == (49152, 576)
    file.metadata["gemma2.final_logit_softcapping"] = 30.0
    assert output_matrix_of_gguf(file) is None
