"""The two lemmas of KerBS's appendix, on clusters of contexts that are held fixed."""

import math

import pytest
import torch
from scipy.stats import spearmanr

from unspool.heads.kerbs import Kerbs
from unspool.heads.kerbs_kernel import kernel

WIDTH, EACH = 8, 50


def descend(head, parameter, hidden, targets, rate, steps):
    """Plain gradient descent on one parameter."""
    for _ in range(steps):
        loss, _ = head.loss(hidden, targets, torch.ones(len(targets)))
        (grad,) = torch.autograd.grad(loss / len(targets), parameter)
        parameter.data -= rate * grad


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("copied", [False, True])
def test_a1_two_disconnected_clusters_end_with_one_sense_each(copied, seed):
    """The first sense of word 0 stands in its first cluster; the second is new: near 0, or a copy of the first."""
    dice = torch.Generator().manual_seed(seed)
    axes = torch.eye(WIDTH)
    second = math.cos(2 * math.pi / 3) * axes[0] + math.sin(2 * math.pi / 3) * axes[1]
    centres = torch.stack([axes[0], second, axes[2], -axes[2]]).repeat_interleave(EACH, 0)
    hidden = 3 * centres + 0.3 * torch.randn(4 * EACH, WIDTH, generator=dice)
    targets = torch.tensor([0, 0, 1, 2]).repeat_interleave(EACH)
    head = Kerbs(WIDTH, torch.tensor([0, 1, 2, 0]), 3)
    new = 2 * copied * axes[0] + 0.2 * torch.randn(WIDTH, generator=dice) / WIDTH**0.5
    head.senses_SD.data = torch.stack([2 * axes[0], 2 * axes[2], -2 * axes[2], new])
    descend(head, head.senses_SD, hidden, targets, rate=0.3, steps=250)
    with torch.no_grad():
        scores = kernel(hidden[: 2 * EACH], head.senses_SD, head.theta_S)[:, [0, 3]]
    shares = scores.softmax(-1).reshape(2, EACH, 2).mean(1)
    assert sorted(shares.argmax(-1).tolist()) == [0, 1]
    assert shares.amax(-1).min().item() >= 0.95


@pytest.mark.parametrize("seed", range(3))
def test_a1_holds_when_everything_is_learnt_from_a_random_start(seed):
    """Both senses of word 0 begin anywhere, and every θ is learnt, too."""
    dice = torch.Generator().manual_seed(seed)
    axes = torch.eye(WIDTH)
    centres = torch.stack([axes[0], -axes[0], axes[2], -axes[2]]).repeat_interleave(EACH, 0)
    hidden = 3 * centres + 0.3 * torch.randn(4 * EACH, WIDTH, generator=dice)
    targets = torch.tensor([0, 0, 1, 2]).repeat_interleave(EACH)
    head = Kerbs(WIDTH, torch.tensor([0, 1, 2, 0]), 3)
    head.senses_SD.data = torch.randn(4, WIDTH, generator=dice) / WIDTH**0.5
    for _ in range(250):
        loss, _ = head.loss(hidden, targets, torch.ones(len(targets)))
        grads = torch.autograd.grad(loss / len(targets), [head.senses_SD, head.theta_S])
        for parameter, grad in zip((head.senses_SD, head.theta_S), grads, strict=True):
            parameter.data -= 0.3 * grad
    with torch.no_grad():
        scores = kernel(hidden[: 2 * EACH], head.senses_SD, head.theta_S)[:, [0, 3]]
    shares = scores.softmax(-1).reshape(2, EACH, 2).mean(1)
    assert sorted(shares.argmax(-1).tolist()) == [0, 1]
    assert shares.amax(-1).min().item() >= 0.95


@pytest.mark.parametrize("seed", range(3))
def test_a2_wider_clusters_learn_a_larger_theta(seed):
    """One word in a cluster, twenty others anywhere; only the word's θ is learnt, for eight variances."""
    spreads = [0.3 + 0.2 * k for k in range(8)]
    thetas = []
    for spread in spreads:
        dice = torch.Generator().manual_seed(seed)
        near = torch.eye(WIDTH)[0] + spread * torch.randn(2 * EACH, WIDTH, generator=dice) / WIDTH**0.5
        contexts = torch.cat([near, torch.randn(2 * EACH, WIDTH, generator=dice)])
        hidden = 8**0.5 * torch.nn.functional.normalize(contexts, dim=-1)
        targets = torch.cat([torch.zeros(2 * EACH).long(), 1 + torch.arange(2 * EACH) % 20])
        head = Kerbs(WIDTH, torch.arange(21), 21)
        head.senses_SD.data = torch.zeros(21, WIDTH)
        head.senses_SD.data[0, 0] = 1.5 * 8**0.5
        descend(head, head.theta_S, hidden, targets, rate=5.0, steps=60)
        thetas.append(head.theta_S[0].item())
    assert spearmanr(thetas, spreads).statistic >= 0.9
    assert thetas[-1] - thetas[0] > 1.0
