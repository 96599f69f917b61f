"""KerBS's kernel: an inner product whose dependence on the angle is bent by one number for each sense.

    K_θ(h, w) = |h|·|w|·(a·exp(−θ·cos(h, w)) − a),   a = −θ / (2·(exp(−θ) + θ − 1))

Miao et al. 2019, §3 (papers.bib: miao2019kernelized). θ → 0 gives the inner product. A larger θ
is flatter where the angle is small, for a wide cluster of contexts; between cos = 0 and cos = 1 the mean
of K/(|h|·|w|) is ½ for every θ.

Both factors lose all digits near θ = 0 as they are printed. Here, with x = −θ·cos,

    K_θ = |h|·|w|·(−κ/θ)·E,           E = exp(x) − 1,          κ(θ) = θ² / (2·(exp(−θ) + θ − 1))
    ∂K/∂cos = |h|·|w|·κ·(E + 1)
    ∂K/∂θ = −|h|·|w|·(κ′/θ·E + κ/θ²·F),   F = x·exp(x) − E = x²·(1/2 + x/3 + x²/8 + x³/30 + …)

κ is smooth with κ(0) = 1 and has a series; so has F; E is what expm1 computes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

SMALLEST = 1e-10
"""|θ| is taken to be at least so large: the kernel differs from θ = 0 by less than single precision sees."""
LARGEST = 40.0
"""… and at most so large, that no exponential overflows."""
BEND = tuple((n - 1) / math.factorial(n) for n in range(2, 11))
"""F = x²·Σ_k BEND[k]·x^k."""


def kernel(hidden: Tensor, senses_SD: Tensor, theta_S: Tensor) -> Tensor:
    """(…, D), (S, D), (S,) → (…, S): K_θ of every hidden vector with every sense; never in half precision."""
    full = torch.promote_types(senses_SD.dtype, torch.float32)
    hidden, senses_SD, theta_S = hidden.to(full), senses_SD.to(full), theta_S.to(full)
    tiny = shortest(hidden)
    length, length_S1 = lengths(hidden), lengths(senses_SD)
    with torch.autocast(hidden.device.type, enabled=False):
        cos = (hidden / length.clamp_min(tiny)) @ (senses_SD / length_S1.clamp_min(tiny)).t()
    scores: Tensor = length * length_S1[:, 0] * profile(cos, theta_S)
    return scores


def lengths(vectors: Tensor) -> Tensor:
    """(…, D) → (…, 1). Entries are made small before they are squared: the squares of large ones overflow."""
    largest = vectors.detach().abs().amax(-1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)
    found: Tensor = (vectors / largest).norm(dim=-1, keepdim=True) * largest
    return found


def shortest(vectors: Tensor) -> float:
    """A shorter vector may have a length that is rounded to 0, and no direction."""
    return float(torch.finfo(vectors.dtype).tiny ** 0.5)


def profile(cos: Tensor, theta: Tensor) -> Tensor:
    """K_θ / (|h|·|w|) as a function of the angle, with exact gradients at every θ. Shapes broadcast."""
    value: Tensor = _Profile.apply(cos, theta)  # type: ignore[no-untyped-call]
    return value


def bounded(theta: Tensor) -> Tensor:
    """θ, neither too close to 0 to divide by nor too large to exponentiate."""
    theta = theta.clamp(-LARGEST, LARGEST)
    return torch.where(theta.abs() < SMALLEST, SMALLEST, theta)


def scale(theta: Tensor) -> tuple[Tensor, Tensor]:
    """κ(θ) and κ′(θ) = −q′/q², from q(θ) = 1/κ(θ) = Σ_k 2·(−θ)^k / (k + 2)!."""
    given, theta = theta.dtype, theta.double()  # one number a sense; in single precision digits would be lost
    near = theta.clamp(-1.0, 1.0)
    q, slope = torch.zeros_like(near), torch.zeros_like(near)
    for k in reversed(range(18)):
        slope = q - slope * near  # Horner's rule in −θ for q and, by the product rule, for dq/d(−θ)
        q = 2.0 / math.factorial(k + 2) - q * near
    far = theta.abs() > 1.0
    safe = torch.where(far, theta, 1.0)
    q = torch.where(far, 2.0 * (torch.expm1(-safe) + safe) / safe**2, q)
    slope = torch.where(far, -2.0 * (torch.expm1(-safe) / safe + q) / safe, -slope)
    return (1.0 / q).to(given), (-slope / q**2).to(given)


def bend(x: Tensor, e: Tensor) -> Tensor:
    """F(x) = x·exp(x) − E to full precision, given E = exp(x) − 1."""
    series = torch.full_like(x, BEND[-1])
    for coefficient in reversed(BEND[:-1]):
        series = series * x + coefficient
    return torch.where(x.abs() < 0.3, x**2 * series, x * e + (x - e))


class _Profile(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cos: Tensor, theta: Tensor) -> Tensor:
        ctx.save_for_backward(cos, theta)
        theta = bounded(theta)
        kappa, _ = scale(theta)
        return torch.expm1(-theta * cos) * (-kappa / theta)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, Tensor | None]:
        cos, given = ctx.saved_tensors
        theta = bounded(given)
        grad_cos = grad_theta = None
        if ctx.needs_input_grad[0]:
            kappa, _ = scale(theta)
            grad_cos = (outer[0] * kappa * torch.exp(-theta * cos)).sum_to_size(cos.shape)
        if ctx.needs_input_grad[1]:
            # In double precision: it is a difference, and crosses 0 between cos = 0 and 1 at every θ.
            theta = theta.double()
            kappa, slope = scale(theta)
            x = -theta * cos.double()
            e = torch.expm1(x)
            by_theta = -(slope / theta) * e - (kappa / theta**2) * bend(x, e)
            inside = given.abs() <= LARGEST
            grad_theta = (outer[0] * by_theta).sum_to_size(given.shape).to(given.dtype) * inside
        return grad_cos, grad_theta
