import pytest
import torch

from unspool.integrations.huggingface.causal_model import step_from_logits
from unspool.integrations.huggingface.loading import from_huggingface

FAMILIES = ["gpt2", "llama", "opt", "t5", "bart", "marian", "gemma2", "mamba"]


def test_a_step_has_the_way_back_to_logits():
    logits = torch.tensor([[1.0, 2.0, 3.0], [0.0, -torch.inf, 0.0]])
    step = step_from_logits(logits, None)
    torch.testing.assert_close(step.logp_NV.exp().sum(-1), torch.ones(2))
    torch.testing.assert_close(step.logp_NV + step.log_norm_N[:, None], logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_output_matrix_is_shown_where_the_logits_are_its_products(families, family):
    model = from_huggingface(families[family])
    matrix = model.output_matrix
    assert (matrix is None) == (family == "gemma2")  # tanh is no product
    if matrix is not None:
        step, _ = model.start([[5, 6, 2]])
        want = (matrix.detach() @ step.hidden_ND[0]).log_softmax(-1)
        torch.testing.assert_close(step.logp_NV[0], want, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_its_size_context_and_engine_are_told(families, family):
    model = from_huggingface(families[family])
    assert model.vocab_size == 40
    assert model.context == (None if family in ("t5", "mamba") else 64)
    assert model.engine == "transformers"
    assert model.is_encoder_decoder == (family in ("t5", "bart", "marian"))
    assert (model.rewindable is None) == (family == "mamba")


@pytest.mark.parametrize("family", FAMILIES)
def test_no_hook_stays(families, family):
    model = from_huggingface(families[family])
    model.start([[5, 6, 2]])
    assert not model.head._forward_pre_hooks
    with pytest.raises(RuntimeError):
        model.run(input_ids=torch.zeros(1, 1))  # not whole numbers
    assert not model.head._forward_pre_hooks
