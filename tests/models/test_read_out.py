import pytest
import torch

from unspool.heads import (
    BilinearHeadConfig,
    KerbsHeadConfig,
    MixtureHeadConfig,
    SigsoftmaxHeadConfig,
    SoftmaxHeadConfig,
    TemperedHeadConfig,
)
from unspool.heads.softmax import predict_step

HIDDEN = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
HEADS = [
    SoftmaxHeadConfig(),
    SoftmaxHeadConfig(bias=True),
    TemperedHeadConfig(),
    BilinearHeadConfig(inner_width=4),
    SigsoftmaxHeadConfig(),
    KerbsHeadConfig(senses=2.0),
]


@pytest.mark.parametrize("config", HEADS, ids=repr)
@torch.inference_mode()
def test_log_p_and_its_constant_give_the_logits_back(config):
    torch.manual_seed(2)
    head = config.build(6, 11)
    step = predict_step(head, HIDDEN)
    torch.testing.assert_close(step.logp_NV, head(HIDDEN))
    torch.testing.assert_close(step.logp_NV + step.log_norm_N[:, None], head.logits(HIDDEN))


@torch.inference_mode()
def test_by_hand_and_the_one_that_has_none():
    head = SoftmaxHeadConfig(bias=True).build(1, 3)
    head.weight.copy_(torch.tensor([[1.0], [2.0], [0.0]]))
    head.bias.copy_(torch.tensor([0.0, 0.0, 5.0]))
    step = predict_step(head, torch.tensor([[2.0]]))
    assert (step.logp_NV + step.log_norm_N[:, None]).tolist() == [pytest.approx([2.0, 4.0, 5.0])]
    assert predict_step(MixtureHeadConfig().build(6, 11), HIDDEN).log_norm_N is None
