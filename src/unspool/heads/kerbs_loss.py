"""The KerBS loss and its gradients, chunk by chunk, without recomputation.

    z_s = K_θs(h, w_s),   −log P(y = i) = logsumexp_s z_s − logsumexp_{s ∈ i} z_s
    ∂/∂z_s = P(s) − [s ∈ i]·P(s | i)

Miao et al. 2019, §3 (papers.bib: miao2019kernelized). Without label smoothing, only the senses of the
target are summed by word.

With x, E, F and κ of `kerbs_kernel.py`, and G = ∂L/∂z, for every sense:

    P = Σ_rows |h|·G·E,   B = Σ_rows G·(E + 1)·h,   X = Σ_rows |h|·G·F = −θ·B·w/|w| − P
    ∂L/∂w = −(κ/θ)·P·w/|w| + κ·(B − w·(w·B)/|w|²),   ∂L/∂θ = −|w|·(κ′/θ·P + κ/θ²·X)

B is the matrix product that every softmax needs for the gradient of its weights. The identity for X loses
digits at small θ; there F = x·E·(1/2 + x/12 − x³/720 + …) is summed, with three terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unspool.heads.chunked_loss import chunks, forbid_second_order, select_weighted
from unspool.heads.kerbs_kernel import MAX_THETA, SenseTable, clamp_theta, kappa_and_slope, min_norm, norms

STRIP_SCORES = 1 << 19
"""Scores per strip of elementwise passes (2 MB in float32), small enough for the caches."""
SERIES_BELOW = {torch.float32: 0.5, torch.float64: 0.01}
"""Below this |θ|, F is summed by its series; its error θ⁵/15120 then equals that of the identity."""

CACHE_LINE = 16
"""Float32 numbers per cache line."""
GATHER_SHARE = 16
"""Columns are gathered if they are fewer than one in this many."""
MAX_EXPONENT = 60.0
"""exp(−60) still has all its digits in float32; smaller values underflow."""


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


def _strips(rows: int, senses: int) -> Iterator[slice]:
    size = max(1, STRIP_SCORES // senses)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


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
        given = hidden_MD.to(full), senses_SD.to(full), theta_S.to(full), table
        with torch.autocast(hidden_MD.device.type, enabled=False):
            sums = _KerbsSums(*given, smoothing, needs_grad)
            for rows in sums.chunks:
                sums.add(rows, targets_M[rows], weights_M[rows].to(full))
            if needs_grad:
                grads = (sums.grad_hidden_MD, *sums.sense_gradients())
                dtypes = (tensor.dtype for tensor in (hidden_MD, senses_SD, theta_S))
                ctx.save_for_backward(*(grad.to(dtype) for grad, dtype in zip(grads, dtypes, strict=True)))
        ctx.mark_non_differentiable(sums.logp_M, sums.usage_MJ)
        return sums.loss, sums.logp_M, sums.usage_MJ

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        forbid_second_order()
        needs_grad = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        grads = [grad * outer[0] if want else None for grad, want in needs_grad]
        return (*grads, None, None, None, None, None)


class _KerbsSums:
    """Running loss and gradients, and the buffers for the scores of a chunk."""

    def __init__(
        self,
        hidden_MD: Tensor,
        senses_SD: Tensor,
        theta_S: Tensor,
        table: SenseTable,
        smoothing: float,
        needs_grad: bool,
    ) -> None:
        tiny = min_norm(hidden_MD)
        # Rows of scores are padded to whole cache lines; padding senses score −∞.
        self.count, padding = len(senses_SD), -len(senses_SD) % CACHE_LINE
        senses_SD = F.pad(senses_SD.index_select(0, table.order_S), (0, 0, 0, padding))
        theta_S = F.pad(theta_S[table.order_S], (0, padding))
        self.hidden_MD, self.senses_SD, self.table = hidden_MD, senses_SD, table
        self.position_VJ = table.position_S[table.senses_VJ]
        self.smoothing, self.needs_grad = smoothing, needs_grad
        self.norm_M1 = norms(hidden_MD)
        self.unit_MD = hidden_MD / self.norm_M1.clamp_min(tiny)
        self.norm_S = norms(senses_SD)[:, 0].clamp_min(tiny)
        self.inside_S, self.theta_S = theta_S.abs() <= MAX_THETA, clamp_theta(theta_S)
        self.kappa_S, _ = kappa_and_slope(self.theta_S)
        self.amplitude_S = -self.kappa_S / self.theta_S * self.norm_S
        self.scaled_senses_SD = senses_SD * (-self.theta_S / self.norm_S)[:, None]
        self.series_K = (self.theta_S[: self.count].abs() < SERIES_BELOW[hidden_MD.dtype]).nonzero()[:, 0]
        # By words, not senses: as many rows as for a softmax, because products of fewer rows are slower.
        self.chunks = list(chunks(len(hidden_MD), len(table.senses_VJ)))
        size = self.chunks[0].stop if self.chunks else 0
        strip = next(_strips(size, len(senses_SD)), slice(0, 0)).stop
        self.scores_RS = hidden_MD.new_empty(size, len(senses_SD))
        self.strips = hidden_MD.new_empty(3, strip, len(senses_SD))
        self.loss = hidden_MD.new_zeros(())
        self.logp_M = hidden_MD.new_empty(len(hidden_MD))
        self.usage_MJ = hidden_MD.new_empty(len(hidden_MD), table.senses_VJ.shape[1])
        if needs_grad:
            self.kappa_senses_SD = self.kappa_S[:, None] * senses_SD
            self.grad_hidden_MD = torch.empty_like(hidden_MD)
            self.b_SD, self.p_S = torch.zeros_like(senses_SD), torch.zeros_like(theta_S)
            self.x_K = hidden_MD.new_zeros(len(self.series_K))
            self.factor_M1, self.by_length_M1 = (torch.empty_like(self.norm_M1) for _ in range(2))

    def add(self, rows: slice, targets_R: Tensor, weights_R: Tensor) -> None:
        """Add the loss and, if needed, the gradients of some rows."""
        x_RS = self.scores_RS[: rows.stop - rows.start]
        torch.mm(self.unit_MD[rows], self.scaled_senses_SD.t(), out=x_RS)
        for part in _strips(len(x_RS), x_RS.shape[1]):
            strip = slice(rows.start + part.start, rows.start + part.stop)
            self._add_strip(strip, x_RS[part], targets_R[part], weights_R[part])
        if self.needs_grad:
            unit_RD, q_RS, factor_R1 = self.unit_MD[rows], x_RS, self.factor_M1[rows]
            turn_RD = q_RS @ self.kappa_senses_SD
            along_R1 = self.by_length_M1[rows] - (unit_RD * turn_RD).sum(-1, keepdim=True)
            torch.mul(turn_RD.addcmul_(unit_RD, along_R1), factor_R1, out=self.grad_hidden_MD[rows])
            self.b_SD.addmm_(q_RS.t(), self.hidden_MD[rows] * factor_R1)

    def _add_strip(self, rows: slice, x_RS: Tensor, targets_R: Tensor, weights_R: Tensor) -> None:
        """Everything except the matrix products, in place.

        z becomes exp(z − top), then G up to the factor weight / Σ exp(z − top) of its row; E becomes G·E; x
        becomes G·(E + 1), the input of the products.
        """
        e_RS, z_RS, scratch_RS = self.strips[:, : len(x_RS)]
        torch.expm1(x_RS, out=e_RS)
        torch.mul(e_RS, self.amplitude_S, out=z_RS).mul_(self.norm_M1[rows])
        z_RS[:, self.count :] = -torch.inf

        target = _TargetSenses.gather(z_RS, self.position_VJ[targets_R], self.table.is_sense_VJ[targets_R])
        top_R1 = z_RS.amax(-1, keepdim=True)
        words = _SmoothedWords(self.table, z_RS, top_R1, scratch_RS) if self.smoothing else None
        exp_RS = z_RS.sub_(top_R1).exp_()
        sum_R1 = exp_RS.sum(-1, keepdim=True)
        mean_R = target.log_R if words is None else words.mean(exp_RS)
        # Σ weight · [ logsumexp_s z_s − (1 − s)·logsumexp_{s ∈ i} z_s − s·(mean over words) ]
        total_R, s = (top_R1 + sum_R1.log())[:, 0], self.smoothing
        self.logp_M[rows] = target.log_R - total_R
        self.usage_MJ[rows] = (target.z_RJ - total_R[:, None]).exp()
        self.loss += weights_R @ (total_R - (1.0 - s) * target.log_R - s * mean_R)
        if not self.needs_grad:
            return

        if words is not None:
            words.subtract(exp_RS, sum_R1 * (self.smoothing / len(self.position_VJ)))
        g_RS = target.subtract(exp_RS, sum_R1, 1.0 - self.smoothing)
        self._add_gradients(rows, x_RS, e_RS, g_RS, scratch_RS, weights_R[:, None] / sum_R1)

    def _add_gradients(
        self, rows: slice, x_RS: Tensor, e_RS: Tensor, g_RS: Tensor, scratch_RS: Tensor, factor_R1: Tensor
    ) -> None:
        """Add P and X of every sense; store factor and Σ_s G·E·amplitude of every row; set x = G·(E + 1)."""
        ge_RS = e_RS.mul_(g_RS)
        scaled_norm_R = (factor_R1 * self.norm_M1[rows])[:, 0]
        self.p_S.addmv_(ge_RS.t(), scaled_norm_R)
        if len(self.series_K):
            self._add_series(x_RS, ge_RS, scratch_RS, scaled_norm_R / 12.0)
        torch.add(ge_RS, g_RS, out=x_RS)
        self.factor_M1[rows], self.by_length_M1[rows] = factor_R1, (ge_RS @ self.amplitude_S)[:, None]

    def _add_series(self, x_RS: Tensor, ge_RS: Tensor, out_RS: Tensor, scaled_norm_R: Tensor) -> None:
        """Add 12·|h|·G·F of the senses with small θ to X; for all senses unless few, as gathering is slow."""
        is_few = len(self.series_K) < x_RS.shape[1] // GATHER_SHARE
        if is_few:
            x_RS, ge_RS = x_RS.index_select(1, self.series_K), ge_RS.index_select(1, self.series_K)
            out_RS = torch.empty_like(x_RS)
        square_RS = torch.mul(x_RS, x_RS, out=out_RS)
        torch.addcmul(x_RS, square_RS, x_RS, value=-1.0 / 60.0, out=out_RS)
        sums = out_RS.add_(6.0).mul_(x_RS).mul_(ge_RS).t().mv(scaled_norm_R)
        self.x_K += sums if is_few else sums[self.series_K]

    def sense_gradients(self) -> tuple[Tensor, Tensor]:
        """Gradients of the sense vectors and of θ, from the sums P, B and X."""
        along_S = torch.einsum("sd,sd->s", self.senses_SD, self.b_SD) / self.norm_S
        # In float64, because of two successive differences.
        theta_S, p_S = self.theta_S.double(), self.p_S.double()
        kappa_S, slope_S = kappa_and_slope(theta_S)
        x_S = -theta_S * along_S.double() - p_S
        x_S[self.series_K] = self.x_K.double()
        by_theta_S = (slope_S / theta_S * p_S + kappa_S / theta_S**2 * x_S).to(along_S)
        radial_S = -(self.p_S / self.theta_S + along_S) * self.kappa_S / self.norm_S
        by_vector_SD = self.b_SD.mul_(self.kappa_S[:, None]).addcmul_(self.senses_SD, radial_S[:, None])
        by_theta_S = -self.norm_S * by_theta_S * self.inside_S
        return by_vector_SD.index_select(0, self.table.position_S), by_theta_S[self.table.position_S]


@dataclass(frozen=True)
class _TargetSenses:
    """The senses of each row's target: positions, z (−∞ on padding), and logsumexp of z."""

    position_RJ: Tensor
    z_RJ: Tensor
    log_R: Tensor

    @classmethod
    def gather(cls, z_RS: Tensor, position_RJ: Tensor, is_sense_RJ: Tensor) -> _TargetSenses:
        """Gather z at these positions."""
        z_RJ = z_RS.gather(1, position_RJ).masked_fill_(~is_sense_RJ, -torch.inf)
        return cls(position_RJ, z_RJ, z_RJ.logsumexp(-1))

    def subtract(self, exp_RS: Tensor, sum_R1: Tensor, share: float) -> Tensor:
        """Subtract share·P(s | i)·Σ exp(z − top) from exp(z − top) of the target's senses."""
        own_RJ = (self.z_RJ - self.log_R[:, None]).exp()
        return exp_RS.scatter_add_(1, self.position_RJ, -share * own_RJ * sum_R1)


class _SmoothedWords:
    """For label smoothing: log Σ_j exp z_ij of every word, and P(s | word of s).

    Both are computed from exp(z − top), unless a word is so improbable that it would underflow.
    """

    def __init__(self, table: SenseTable, z_RS: Tensor, top_R1: Tensor, scratch_RS: Tensor) -> None:
        self.table, self.top_R1, self.scratch_RS = table, top_R1, scratch_RS
        self.single = slice(table.n_multi_sense, len(table.senses_VJ))
        self.total_R = z_RS[:, self.single].sum(-1)
        self.logs_RW: Tensor | None = None
        real = len(table.words_S)
        if table.n_multi_sense and bool(
            (z_RS[:, :real].amin(-1, keepdim=True) < top_R1 - MAX_EXPONENT).any()
        ):
            self.logs_RW = table.sum_multi_sense(z_RS, torch.logaddexp)
            for senses, words in table.blocks():
                torch.sub(z_RS[:, senses], self.logs_RW[:, words], out=scratch_RS[:, senses]).exp_()

    def mean(self, exp_RS: Tensor) -> Tensor:
        """The mean of log Σ_j exp z_ij over words, given exp(z − top)."""
        if self.logs_RW is None:
            self.sums_RW = self.table.sum_multi_sense(exp_RS, torch.add)
            logs_RW = torch.log(self.sums_RW, out=self.scratch_RS[:, : self.table.n_multi_sense]).add_(
                self.top_R1
            )
        else:
            logs_RW = self.logs_RW
        return (self.total_R + logs_RW.sum(-1)) / len(self.table.senses_VJ)

    def subtract(self, exp_RS: Tensor, size_R1: Tensor) -> None:
        """Subtract size·P(s | word of s) from every exp(z − top)."""
        exp_RS[:, self.single] -= size_R1
        if self.logs_RW is None:
            kept_RW = torch.div(size_R1, self.sums_RW, out=self.sums_RW).neg_().add_(1.0)
            for senses, words in self.table.blocks():
                exp_RS[:, senses] *= kept_RW[:, words]
        else:
            for senses, _ in self.table.blocks():
                exp_RS[:, senses] -= self.scratch_RS[:, senses].mul_(size_R1)
