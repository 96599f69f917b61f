"""The loss of any head, some rows at a time: gradients are taken while the rows' scores are at hand.

    L = Σ_m w_m · ℓ(h_m; φ),   ∂L/∂φ = Σ_chunks ∂/∂φ Σ_{m ∈ chunk} w_m · ℓ(h_m; φ)

Every chunk is differentiated by torch as soon as it is computed, and its graph is thrown away: the memory
is that of one chunk, and nothing is computed twice. Heads with a gradient of their own are faster
(`chunked.py`, `kerbs_loss.py`); this serves the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unspool.heads.chunked import chunks, counted, refuse_second_order

LogProbabilities = Callable[..., Tensor]
"""(hidden_RD, *parameters) → logp_RV."""


def rowwise_loss(
    logp: LogProbabilities,
    hidden_MD: Tensor,
    parameters: tuple[Tensor | None, ...],
    targets_M: Tensor,
    weights_M: Tensor,
    smoothing: float,
    scores: int,
) -> tuple[Tensor, Tensor]:
    """`LossHead.loss` for logp(hidden, *parameters); `scores` is how many numbers a row takes on the way."""
    hidden_MD, targets_M, weights_M = counted(hidden_MD, targets_M, weights_M, smoothing)
    both: tuple[Tensor, Tensor] = _RowwiseLoss.apply(  # type: ignore[no-untyped-call]
        logp, targets_M, weights_M, smoothing, scores, torch.is_grad_enabled(), hidden_MD, *parameters
    )
    return both


class _RowwiseLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logp: LogProbabilities,
        targets_M: Tensor,
        weights_M: Tensor,
        smoothing: float,
        scores: int,
        with_gradients: bool,
        hidden_MD: Tensor,
        *parameters: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        wanted = [with_gradients and it for it in ctx.needs_input_grad[6:]]
        given = [
            None if it is None else it.detach().requires_grad_(want)
            for it, want in zip(parameters, wanted[1:], strict=True)
        ]
        leaves = [it for it in given if it is not None and it.requires_grad]
        sums = [torch.zeros_like(it) for it in leaves]
        grad_hidden_MD = torch.zeros_like(hidden_MD)
        full = torch.promote_types(hidden_MD.dtype, torch.float32)
        loss, nll = torch.zeros(2, dtype=full, device=hidden_MD.device).unbind()
        for rows in chunks(len(hidden_MD), scores):
            hidden_RD = hidden_MD[rows].detach().requires_grad_(any(wanted))
            with torch.set_grad_enabled(any(wanted)):
                logp_RV = logp(hidden_RD, *given).to(full)
                nll_R = -logp_RV.gather(1, targets_M[rows, None])[:, 0]
                loss_R = (1.0 - smoothing) * nll_R - smoothing * logp_RV.mean(-1) if smoothing else nll_R
                # Not a product of vectors, which autocast would take, and round, in half precision.
                part = (weights_M[rows].to(full) * loss_R).sum()
            loss += part.detach()
            nll += (weights_M[rows].to(full) * nll_R.detach()).sum()
            if any(wanted):
                *grads, grad_RD = torch.autograd.grad(part, [*leaves, hidden_RD], materialize_grads=True)
                grad_hidden_MD[rows] = grad_RD
                for total, grad in zip(sums, grads, strict=True):
                    total += grad
        found = iter(sums)
        hidden_or_none = grad_hidden_MD if wanted[0] else None
        ctx.save_for_backward(hidden_or_none, *(next(found) if want else None for want in wanted[1:]))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_order()
        grads = (None if it is None else it * outer[0] for it in ctx.saved_tensors)
        return (None, None, None, None, None, None, *grads)
