"""The KerBS loss and its gradients, chunk by chunk, without recomputation.

    z_s = K_θs(h, w_s),   −log P(y = i) = logsumexp_s z_s − logsumexp_{s ∈ i} z_s
    ∂/∂z_s = P(s) − [s ∈ i]·P(s | i)

Miao et al. 2019, §3 (papers.bib: miao2019kernelized). With x, E, F and κ of `kerbs_kernel.py`, G = ∂L/∂z
and, for every sense,

    P = Σ_rows |h|·G·E,   B = Σ_rows G·(E + 1)·h,   X = Σ_rows |h|·G·F = −θ·B·w/|w| − P
    ∂L/∂w = −(κ/θ)·P·w/|w| + κ·(B − w·(w·B)/|w|²),   ∂L/∂θ = −|w|·(κ′/θ·P + κ/θ²·X)

B is the matrix product that every softmax needs for the gradient of its weights. The identity for X loses
digits at small θ; there F = x·E·(1/2 + x/12 − x³/720 + …) is summed, with three terms.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unspool.heads.chunked_loss import chunks, forbid_second_order, select_weighted
from unspool.heads.kerbs_kernel import MAX_THETA, SenseTable, clamp_theta, kappa_and_slope, min_norm, norms

SERIES_BELOW = {torch.float32: 0.5, torch.float64: 0.01}
"""Below this |θ|, F is summed by its series; its error θ⁵/15120 then equals that of the identity."""


def kerbs_loss(
    hidden_MD: Tensor,
    senses_SD: Tensor,
    theta_S: Tensor,
    table: SenseTable,
    targets_M: Tensor,
    weights_M: Tensor,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """`LossHead.loss`, and the targets with weight, their log P(y), and P(s) of their senses (·, J)."""
    hidden_MD, targets_M, weights_M = select_weighted(hidden_MD, targets_M, weights_M, smoothing)
    loss, logp_M, usage_MJ = _KerbsLoss.apply(  # type: ignore[no-untyped-call]
        hidden_MD, senses_SD, theta_S, table, targets_M, weights_M, smoothing, torch.is_grad_enabled()
    )
    # Not a dot product, which autocast would compute in half precision.
    nll = -(weights_M.to(logp_M.dtype) * logp_M).sum()
    return loss, nll, (targets_M, logp_M, usage_MJ)


class _KerbsLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        senses_SD: Tensor,
        theta_S: Tensor,
        table: SenseTable,
        targets_M: Tensor,
        weights_M: Tensor,
        smoothing: float,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        full = torch.promote_types(senses_SD.dtype, torch.float32)
        needs_grad = with_gradients and any(ctx.needs_input_grad[:3])
        with torch.autocast(hidden_MD.device.type, enabled=False):
            sums = _KerbsSums(hidden_MD.to(full), senses_SD.to(full), theta_S.to(full), table, needs_grad)
            for rows in sums.chunks:
                sums.add(rows, targets_M[rows], weights_M[rows].to(full), smoothing)
            if needs_grad:
                grads = (sums.grad_hidden_MD, *sums.sense_gradients())
                inputs = (hidden_MD, senses_SD, theta_S)
                pairs = zip(grads, inputs, strict=True)
                ctx.save_for_backward(*(gradient.to(given.dtype) for gradient, given in pairs))
        ctx.mark_non_differentiable(sums.logp_M, sums.usage_MJ)
        return sums.loss, sums.logp_M, sums.usage_MJ

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        forbid_second_order()
        needs_grad = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        return (*(it * outer[0] if want else None for it, want in needs_grad), None, None, None, None, None)


class _KerbsSums:
    """Running loss and gradients."""

    def __init__(
        self, hidden_MD: Tensor, senses_SD: Tensor, theta_S: Tensor, table: SenseTable, needs_grad: bool
    ) -> None:
        tiny = min_norm(hidden_MD)
        self.hidden_MD, self.senses_SD, self.table, self.needs_grad = hidden_MD, senses_SD, table, needs_grad
        self.norm_M1 = norms(hidden_MD)
        self.unit_MD = hidden_MD / self.norm_M1.clamp_min(tiny)
        self.norm_S = norms(senses_SD)[:, 0].clamp_min(tiny)
        self.inside_S, self.theta_S = theta_S.abs() <= MAX_THETA, clamp_theta(theta_S)
        self.kappa_S, _ = kappa_and_slope(self.theta_S)
        self.amplitude_S = -self.kappa_S / self.theta_S * self.norm_S
        self.scaled_senses_SD = senses_SD * (-self.theta_S / self.norm_S)[:, None]
        self.chunks = list(chunks(len(hidden_MD), len(senses_SD)))
        size = self.chunks[0].stop if self.chunks else 0
        self.buffers = hidden_MD.new_empty(4, size, len(senses_SD))
        self.loss = hidden_MD.new_zeros(())
        self.logp_M = hidden_MD.new_empty(len(hidden_MD))
        self.usage_MJ = hidden_MD.new_empty(len(hidden_MD), table.senses_VJ.shape[1])
        if needs_grad:
            self.kappa_senses_SD = self.kappa_S[:, None] * senses_SD
            self.grad_hidden_MD = torch.empty_like(hidden_MD)
            self.b_SD, self.p_S = torch.zeros_like(senses_SD), torch.zeros_like(theta_S)
            self.is_small_S = self.theta_S.abs() < SERIES_BELOW[hidden_MD.dtype]
            self.x_S = torch.zeros_like(theta_S)

    def add(self, rows: slice, targets_R: Tensor, weights_R: Tensor, smoothing: float) -> None:
        """Add the loss and, if needed, the gradients of some rows."""
        x_RS, e_RS, z_RS, g_RS = self.buffers[:, : len(targets_R)]
        torch.mm(self.unit_MD[rows], self.scaled_senses_SD.t(), out=x_RS)
        torch.expm1(x_RS, out=e_RS)
        torch.mul(e_RS, self.amplitude_S, out=z_RS).mul_(self.norm_M1[rows])
        top_R1 = z_RS.amax(-1, keepdim=True)
        torch.sub(z_RS, top_R1, out=g_RS).exp_()
        sum_R1 = g_RS.sum(-1, keepdim=True)
        total_R1 = top_R1 + sum_R1.log()
        senses_RJ = self.table.senses_VJ[targets_R]
        z_RJ = z_RS.gather(1, senses_RJ).masked_fill_(~self.table.is_sense_VJ[targets_R], -torch.inf)
        target_R1 = z_RJ.logsumexp(-1, keepdim=True)
        self.logp_M[rows] = (target_R1 - total_R1)[:, 0]
        self.usage_MJ[rows] = (z_RJ - total_R1).exp()
        loss_R1 = total_R1 - (1.0 - smoothing) * target_R1
        if smoothing:
            words_RV = self.table.logsumexp_by_word(z_RS)
            loss_R1 -= smoothing * words_RV.mean(-1, keepdim=True)
        self.loss += weights_R @ loss_R1[:, 0]
        if not self.needs_grad:
            return
        g_RS.mul_(weights_R[:, None] / sum_R1)
        if smoothing:
            share_RS = z_RS.sub_(words_RV[:, self.table.words_S]).exp_()
            g_RS.sub_(share_RS.mul_(weights_R[:, None]), alpha=smoothing / words_RV.shape[1])
        share_RJ = (z_RJ - target_R1).exp()
        g_RS.scatter_add_(1, senses_RJ, (smoothing - 1.0) * weights_R[:, None] * share_RJ)
        self._add_gradients(rows, x_RS, e_RS, g_RS, z_RS)

    def _add_gradients(
        self, rows: slice, x_RS: Tensor, e_RS: Tensor, g_RS: Tensor, scratch_RS: Tensor
    ) -> None:
        """Add P, B and X of every sense, and set the gradient of the hidden vectors."""
        norm_R, unit_RD = self.norm_M1[rows, 0], self.unit_MD[rows]
        ge_RS = e_RS.mul_(g_RS)
        self.p_S += norm_R @ ge_RS
        if self.is_small_S.any():
            torch.mul(x_RS, x_RS, out=scratch_RS)
            torch.addcmul(x_RS, scratch_RS, x_RS, value=-1.0 / 60.0, out=scratch_RS)
            self.x_S += (norm_R / 12.0) @ scratch_RS.add_(6.0).mul_(x_RS).mul_(ge_RS)
        by_norm_R1 = (ge_RS @ self.amplitude_S)[:, None]
        q_RS = ge_RS.add_(g_RS)
        turn_RD = q_RS @ self.kappa_senses_SD
        along_R1 = by_norm_R1 - (unit_RD * turn_RD).sum(-1, keepdim=True)
        self.grad_hidden_MD[rows] = turn_RD.addcmul_(unit_RD, along_R1)
        self.b_SD.addmm_(q_RS.t(), self.hidden_MD[rows])

    def sense_gradients(self) -> tuple[Tensor, Tensor]:
        """Gradients of the sense vectors and of θ, from the sums P, B and X."""
        along_S = torch.einsum("sd,sd->s", self.senses_SD, self.b_SD) / self.norm_S
        # In float64, because of two successive differences.
        theta_S, p_S = self.theta_S.double(), self.p_S.double()
        kappa_S, slope_S = kappa_and_slope(theta_S)
        x_S = torch.where(self.is_small_S, self.x_S.double(), -theta_S * along_S.double() - p_S)
        by_theta_S = (slope_S / theta_S * p_S + kappa_S / theta_S**2 * x_S).to(along_S)
        radial_S = -(self.p_S / self.theta_S + along_S) * self.kappa_S / self.norm_S
        by_vector_SD = self.b_SD.mul_(self.kappa_S[:, None]).addcmul_(self.senses_SD, radial_S[:, None])
        return by_vector_SD, -self.norm_S * by_theta_S * self.inside_S
