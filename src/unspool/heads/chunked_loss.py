"""Chunked cross-entropy: loss and gradients without holding the (M, V) matrix of scores.

    z_m = W h_m + b,   p_m = softmax(z_m),   z̄_m = mean_v z_mv
    L = Σ_m w_m · [logsumexp_v z_mv − (1 − s)·z_{m,t_m} − s·z̄_m]
    ∂L/∂z_m = w_m · [p_m − (1 − s)·onehot(t_m) − s/V]

Label smoothing is Szegedy et al. 2016, §7 (papers.bib: szegedy2016rethinking), with the uniform
distribution. The gradient of a chunk is computed together with its scores, so scores are computed once and
never stored. The smoothing term is linear in h; its gradient is added at the end.

Symbols: M targets, w `weights_M`, t `targets_M`, s `smoothing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

MAX_SCORES = 1 << 22
"""Scores per chunk (16 MB in float32), small enough for the caches."""
MIN_ROWS = 128
"""The fewest rows per chunk; products of fewer rows are limited by reading W."""


def linear_loss(
    hidden_MD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_M: Tensor,
    weights_M: Tensor,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """`LossHead.loss` for log_softmax(W h + b)."""
    hidden_MD, targets_M, weights_M = select_weighted(hidden_MD, targets_M, weights_M, smoothing)
    return _LinearLoss.apply(  # type: ignore[no-untyped-call]
        hidden_MD, weight_VD, bias_V, targets_M, weights_M, smoothing, torch.is_grad_enabled()
    )


def select_weighted(
    hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The targets with nonzero weight (padding has weight 0); checks shapes and smoothing."""
    if not (len(hidden_MD) == len(targets_M) == len(weights_M)) or hidden_MD.dim() != 2:
        raise ValueError(
            f"hidden {tuple(hidden_MD.shape)}, targets {tuple(targets_M.shape)} and weights "
            f"{tuple(weights_M.shape)} must be (M, D), (M,) and (M,): flatten rows and positions first"
        )
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"smoothing={smoothing} must be at least 0 and below 1")
    rows_R = weights_M.nonzero()[:, 0]
    if len(rows_R) == len(weights_M):
        return hidden_MD, targets_M, weights_M
    return hidden_MD[rows_R], targets_M[rows_R], weights_M[rows_R]


def chunks(rows: int, vocab_size: int) -> Iterator[slice]:
    """Slices of MAX_SCORES // V rows (at least MIN_ROWS); the last may be shorter."""
    size = max(MIN_ROWS, MAX_SCORES // vocab_size)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def forbid_second_order() -> None:
    """Called in `backward`: gradients computed in `forward` cannot be differentiated again."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "a head's loss does not support create_graph=True: differentiate head(hidden) instead"
        )


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_M: Tensor,
        weights_M: Tensor,
        smoothing: float,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        needs_grad = tuple(with_gradients and is_needed for is_needed in ctx.needs_input_grad[:3])
        sums = _LinearLossSums(hidden_MD, weight_VD, bias_V, needs_grad)
        weights_M = weights_M.to(sums.scores.dtype)
        with torch.autocast(hidden_MD.device.type, enabled=False):
            for rows in chunks(len(hidden_MD), len(weight_VD)):
                sums.add(hidden_MD[rows], targets_M[rows], weights_M[rows], smoothing, rows)
            if smoothing:
                sums.smooth(hidden_MD, weights_M, smoothing)
        ctx.save_for_backward(*sums.gradients)
        ctx.mark_non_differentiable(sums.nll)
        return sums.loss, sums.nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        forbid_second_order()
        grads = [None if grad is None else grad * outer[0] for grad in ctx.saved_tensors]
        return (*grads, None, None, None, None)


class _LinearLossSums:
    """Running loss and gradients. Products use the autocast dtype, everything else the dtype of W."""

    def __init__(
        self, hidden_MD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, needs_grad: tuple[bool, ...]
    ) -> None:
        device = hidden_MD.device.type
        self.product_dtype = (
            torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_VD.dtype
        )
        self.weight_VD, self.bias_V = weight_VD.to(self.product_dtype), bias_V
        full = torch.promote_types(weight_VD.dtype, torch.float32)
        size = next(chunks(len(hidden_MD), len(weight_VD)), slice(0, 0)).stop
        self.scores = torch.empty(size, len(weight_VD), dtype=full, device=hidden_MD.device)
        self.loss, self.nll = self.scores.new_zeros(()), self.scores.new_zeros(())
        self.grad_hidden_MD = torch.empty_like(hidden_MD) if needs_grad[0] else None
        self.grad_weight_VD = torch.zeros_like(weight_VD, dtype=full) if needs_grad[1] else None
        self.grad_bias_V = torch.zeros_like(bias_V) if needs_grad[2] and bias_V is not None else None
        self.parameters = (hidden_MD, weight_VD, bias_V)

    @property
    def gradients(self) -> tuple[Tensor | None, ...]:
        gradients_so_far = (self.grad_hidden_MD, self.grad_weight_VD, self.grad_bias_V)
        return tuple(
            None if gradient is None or parameters is None else gradient.to(parameters.dtype)
            for gradient, parameters in zip(gradients_so_far, self.parameters, strict=True)
        )

    def add(
        self, hidden_RD: Tensor, targets_R: Tensor, weights_R: Tensor, smoothing: float, rows: slice
    ) -> None:
        """Add the loss and gradient of some rows, without the smoothing term."""
        hidden_RD = hidden_RD.to(self.product_dtype)
        scores_RV = self.scores[: len(hidden_RD)]
        if self.product_dtype == scores_RV.dtype:
            torch.mm(hidden_RD, self.weight_VD.t(), out=scores_RV)
        else:
            scores_RV.copy_(hidden_RD @ self.weight_VD.t())
        if self.bias_V is not None:
            scores_RV.add_(self.bias_V)
        target_R1 = scores_RV.gather(1, targets_R[:, None])
        top_R1 = scores_RV.amax(-1, keepdim=True)
        scores_RV.sub_(top_R1).exp_()
        sum_R1 = scores_RV.sum(-1, keepdim=True)
        total_R = (top_R1 + sum_R1.log())[:, 0]
        self.nll += weights_R.dot(total_R - target_R1[:, 0])
        self.loss += weights_R.dot(total_R - (1.0 - smoothing) * target_R1[:, 0])
        # From here scores_RV · weight / sum is the gradient; the factors are applied to the smaller matrices.
        scores_RV.scatter_add_(1, targets_R[:, None], (smoothing - 1.0) * sum_R1)
        factor_R1 = weights_R[:, None] / sum_R1
        low_RV = scores_RV.to(self.product_dtype)
        if self.grad_hidden_MD is not None:
            torch.mul(low_RV @ self.weight_VD, factor_R1, out=self.grad_hidden_MD[rows])
        if self.grad_weight_VD is not None:
            scaled_RD = (hidden_RD * factor_R1).to(self.product_dtype)
            if self.product_dtype == self.grad_weight_VD.dtype:
                self.grad_weight_VD.addmm_(low_RV.t(), scaled_RD)
            else:
                self.grad_weight_VD += low_RV.t() @ scaled_RD
        if self.grad_bias_V is not None:
            self.grad_bias_V += factor_R1[:, 0] @ scores_RV

    def smooth(self, hidden_MD: Tensor, weights_M: Tensor, smoothing: float) -> None:
        """Add the smoothing term, which is linear in h: − s · Σ_m w_m · z̄_m."""
        full = self.scores.dtype
        mean_D = self.weight_VD.to(full).mean(0)
        sum_D = weights_M @ hidden_MD.to(full)
        self.loss -= smoothing * sum_D.dot(mean_D)
        if self.bias_V is not None:
            self.loss -= smoothing * weights_M.sum() * self.bias_V.mean()
        share = smoothing / len(self.weight_VD)
        if self.grad_hidden_MD is not None:
            self.grad_hidden_MD -= torch.outer(weights_M, smoothing * mean_D)
        if self.grad_weight_VD is not None:
            self.grad_weight_VD -= share * sum_D
        if self.grad_bias_V is not None:
            self.grad_bias_V -= share * weights_M.sum()


LogProbabilities = Callable[..., Tensor]
"""(hidden_RD, *parameters) → logp_RV."""


def rowwise_loss(
    logp: LogProbabilities,
    hidden_MD: Tensor,
    parameters: Sequence[Tensor],
    targets_M: Tensor,
    weights_M: Tensor,
    smoothing: float,
    scores: int,
) -> tuple[Tensor, Tensor]:
    """`LossHead.loss` of any head, logp(hidden, *parameters); `scores` is the number of scores per row.

        L = Σ_m w_m · ℓ(h_m; φ),   ∂L/∂φ = Σ_chunks ∂/∂φ Σ_{m ∈ chunk} w_m · ℓ(h_m; φ)

    torch differentiates every chunk as soon as it is computed and frees its graph, so memory is that of one
    chunk. Heads with hand-written gradients (`linear_loss`, `kerbs_loss`) are faster.
    """
    hidden_MD, targets_M, weights_M = select_weighted(hidden_MD, targets_M, weights_M, smoothing)
    return _RowwiseLoss.apply(  # type: ignore[no-untyped-call]
        logp, targets_M, weights_M, smoothing, scores, torch.is_grad_enabled(), hidden_MD, *parameters
    )


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
        *inputs: Tensor,
    ) -> tuple[Tensor, Tensor]:
        needs_grad = with_gradients and any(ctx.needs_input_grad)
        hidden_MD, *parameters = (tensor.detach() for tensor in inputs)
        for parameter in parameters:
            parameter.requires_grad_(needs_grad)
        sums = [torch.zeros_like(tensor) for tensor in inputs] if needs_grad else []
        full = torch.promote_types(hidden_MD.dtype, torch.float32)
        loss, nll = torch.zeros(2, dtype=full, device=hidden_MD.device).unbind()
        for rows in chunks(len(hidden_MD), scores):
            hidden_RD = hidden_MD[rows].requires_grad_(needs_grad)
            with torch.set_grad_enabled(needs_grad):
                logp_RV = logp(hidden_RD, *parameters).to(full)
                nll_R = -logp_RV.gather(1, targets_M[rows, None])[:, 0]
                loss_R = (1.0 - smoothing) * nll_R - smoothing * logp_RV.mean(-1) if smoothing else nll_R
                # Not a dot product, which autocast would compute in half precision.
                part = (weights_M[rows].to(full) * loss_R).sum()
            loss += part.detach()
            nll += (weights_M[rows].to(full) * nll_R.detach()).sum()
            if needs_grad:
                grads = torch.autograd.grad(part, [hidden_RD, *parameters], materialize_grads=True)
                for total, grad in zip((sums[0][rows], *sums[1:]), grads, strict=True):
                    total += grad
        ctx.save_for_backward(*sums)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        forbid_second_order()
        return (None, None, None, None, None, None, *(grad * outer[0] for grad in ctx.saved_tensors))
