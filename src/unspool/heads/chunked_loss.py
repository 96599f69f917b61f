"""Cross-entropy of a linear softmax without its (M, V) matrix: loss and gradients, some rows at a time.

    z_m = W h_m + b,   p_m = softmax(z_m),   z̄_m = mean_v z_mv
    L = Σ_m w_m · [logsumexp_v z_mv − (1 − s)·z_{m,t_m} − s·z̄_m]
    ∂L/∂z_m = w_m · [p_m − (1 − s)·onehot(t_m) − s/V]

Label smoothing is Szegedy et al. 2016, §7 (papers.bib: szegedy2016rethinking), with the uniform distribution.
The gradient of a sum of rows needs no other row, so that it is taken while the rows' scores are at hand:
they are computed once and never kept. The smoothed part is linear in h, and its gradient is added at the
end, outside the (rows, V) pass.

Symbols: M targets, w `weights_M`, t `targets_M`, s `smoothing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

SCORES = 1 << 22
"""How many scores are held at once (16 MB in single precision): few enough to stay near the caches."""
FEWEST_ROWS = 128
"""… but never fewer rows, for a product of few rows reads W more often than it uses it."""


def linear_loss(
    hidden_MD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_M: Tensor,
    weights_M: Tensor,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """`LossHead.loss` for log_softmax(W h + b)."""
    hidden_MD, targets_M, weights_M = counted(hidden_MD, targets_M, weights_M, smoothing)
    both: tuple[Tensor, Tensor] = _LinearLoss.apply(  # type: ignore[no-untyped-call]
        hidden_MD, weight_VD, bias_V, targets_M, weights_M, smoothing, torch.is_grad_enabled()
    )
    return both


def counted(
    hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Only the targets that count (padding has weight 0), after a look at what was given."""
    if not (len(hidden_MD) == len(targets_M) == len(weights_M)) or hidden_MD.dim() != 2:
        raise ValueError(
            f"hidden {tuple(hidden_MD.shape)}, targets {tuple(targets_M.shape)} and weights "
            f"{tuple(weights_M.shape)} must be (M, D), (M,) and (M,): flatten rows and times first"
        )
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"smoothing={smoothing} must be at least 0 and below 1")
    rows_R = weights_M.nonzero()[:, 0]
    if len(rows_R) == len(weights_M):
        return hidden_MD, targets_M, weights_M
    return hidden_MD[rows_R], targets_M[rows_R], weights_M[rows_R]


def chunks(rows: int, vocab_size: int) -> Iterator[slice]:
    """Slices of at most SCORES // V rows (at least FEWEST_ROWS), all but the last of one length."""
    size = max(FEWEST_ROWS, SCORES // vocab_size)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def refuse_second_order() -> None:
    """To be called in `backward`: gradients that were computed in `forward` have none of their own."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "a head's loss has no second derivatives (create_graph=True): take those of head(hidden) instead"
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
        wanted = tuple(with_gradients and it for it in ctx.needs_input_grad[:3])
        sums = _Sums(hidden_MD, weight_VD, bias_V, wanted)
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
        refuse_second_order()
        hidden_MD, weight_VD, bias_V = (None if it is None else it * outer[0] for it in ctx.saved_tensors)
        return hidden_MD, weight_VD, bias_V, None, None, None, None


class _Sums:
    """Loss and gradients so far. Products are in the precision of autocast, everything else in W's."""

    def __init__(
        self, hidden_MD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, wanted: tuple[bool, ...]
    ) -> None:
        device = hidden_MD.device.type
        self.low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_VD.dtype
        self.weight_VD, self.bias_V = weight_VD.to(self.low), bias_V
        full = torch.promote_types(weight_VD.dtype, torch.float32)
        size = next(chunks(len(hidden_MD), len(weight_VD)), slice(0, 0)).stop
        self.scores = torch.empty(size, len(weight_VD), dtype=full, device=hidden_MD.device)
        self.loss, self.nll = self.scores.new_zeros(()), self.scores.new_zeros(())
        self.grad_hidden_MD = torch.empty_like(hidden_MD) if wanted[0] else None
        self.grad_weight_VD = torch.zeros_like(weight_VD, dtype=full) if wanted[1] else None
        self.grad_bias_V = torch.zeros_like(bias_V) if wanted[2] and bias_V is not None else None
        self.of = (hidden_MD, weight_VD, bias_V)

    @property
    def gradients(self) -> tuple[Tensor | None, ...]:
        found = (self.grad_hidden_MD, self.grad_weight_VD, self.grad_bias_V)
        return tuple(
            None if it is None or of is None else it.to(of.dtype)
            for it, of in zip(found, self.of, strict=True)
        )

    def add(
        self, hidden_RD: Tensor, targets_R: Tensor, weights_R: Tensor, smoothing: float, rows: slice
    ) -> None:
        """Loss and gradient of some rows, without the part that is linear in h."""
        hidden_RD = hidden_RD.to(self.low)
        scores_RV = self._scores(hidden_RD)
        target_R1 = scores_RV.gather(1, targets_R[:, None])
        top_R1 = scores_RV.amax(-1, keepdim=True)
        scores_RV.sub_(top_R1).exp_()
        sum_R1 = scores_RV.sum(-1, keepdim=True)
        total_R = (top_R1 + sum_R1.log())[:, 0]
        self.nll += weights_R.dot(total_R - target_R1[:, 0])
        self.loss += weights_R.dot(total_R - (1.0 - smoothing) * target_R1[:, 0])
        # From here scores_RV · weight / sum is the gradient; the two factors are left to the thin sides.
        scores_RV.scatter_add_(1, targets_R[:, None], (smoothing - 1.0) * sum_R1)
        factor_R1 = weights_R[:, None] / sum_R1
        low_RV = scores_RV.to(self.low)
        if self.grad_hidden_MD is not None:
            torch.mul(low_RV @ self.weight_VD, factor_R1, out=self.grad_hidden_MD[rows])
        if self.grad_weight_VD is not None:
            scaled_RD = (hidden_RD * factor_R1).to(self.low)
            if self.low == self.grad_weight_VD.dtype:
                self.grad_weight_VD.addmm_(low_RV.t(), scaled_RD)
            else:
                self.grad_weight_VD += low_RV.t() @ scaled_RD
        if self.grad_bias_V is not None:
            self.grad_bias_V += factor_R1[:, 0] @ scores_RV

    def smooth(self, hidden_MD: Tensor, weights_M: Tensor, smoothing: float) -> None:
        """The part of the loss that is linear in h: − s · Σ_m w_m · z̄_m."""
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

    def _scores(self, hidden_RD: Tensor) -> Tensor:
        scores_RV = self.scores[: len(hidden_RD)]
        if self.low == scores_RV.dtype:
            torch.mm(hidden_RD, self.weight_VD.t(), out=scores_RV)
        else:
            scores_RV.copy_(hidden_RD @ self.weight_VD.t())
        return scores_RV if self.bias_V is None else scores_RV.add_(self.bias_V)


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
    """`LossHead.loss` for logp(hidden, *parameters); `scores` is how many numbers a row takes on the way.

    The loss of any head, some rows at a time: gradients are taken while the rows' scores are at hand.

        L = Σ_m w_m · ℓ(h_m; φ),   ∂L/∂φ = Σ_chunks ∂/∂φ Σ_{m ∈ chunk} w_m · ℓ(h_m; φ)

    Every chunk is differentiated by torch as soon as it is computed, and its graph is thrown away: the memory
    is that of one chunk, and nothing is computed twice. Heads with a gradient of their own are faster
    (`chunked.py`, `kerbs_loss.py`); this serves the others.
    """
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
