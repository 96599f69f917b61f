"""KerBS's loss and its gradients, some rows at a time, without recomputation.

    z_s = K_θs(h, w_s),   −log P(y = i) = logsumexp_s z_s − logsumexp_{s ∈ i} z_s
    ∂/∂z_s = P(s) − [s ∈ i]·P(s | i)

Miao et al. 2019, §3 (papers.bib: miao2019kernelized). Only the target's own senses are summed by word, unless
labels are smoothed; senses are put in order for that (`SenseTable`). With x, E, F and κ of
`kerbs_kernel.py`, G = ∂L/∂z and, for every sense,

    P = Σ_rows |h|·G·E,   B = Σ_rows G·(E + 1)·h,   X = Σ_rows |h|·G·F = −θ·B·w/|w| − P
    ∂L/∂w = −(κ/θ)·P·w/|w| + κ·(B − w·(w·B)/|w|²),   ∂L/∂θ = −|w|·(κ′/θ·P + κ/θ²·X)

The matrix product that gives B is the one that every softmax needs for its weights. The identity for X loses
digits where θ is small: there F = x·E·(1/2 + x/12 − x³/720 + …) is summed, of which three terms are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unspool.heads.chunked_loss import chunks, counted, refuse_second_order
from unspool.heads.kerbs_kernel import LARGEST, SenseTable, bounded, lengths, scale, shortest

STRIP = 1 << 19
"""Scores that all passes but the products go over at once (2 MB in single precision): few enough to stay near
the caches, and enough that calling the passes costs little."""
FLAT = {torch.float32: 0.5, torch.float64: 0.01}
"""Below this |θ|, F is summed by its series: its error, θ⁵/15120, is then that of the identity above it."""

ALIGNED = 16
"""Numbers in a line of the caches, in single precision."""
FEW = 16
"""Less than one sense in so many are few."""
DEEP = 60.0
"""exp of less than −60 has not all its digits in single precision, where 10⁻³⁸ is the end."""


def kerbs_loss(
    hidden_MD: Tensor,
    senses_SD: Tensor,
    theta_S: Tensor,
    table: SenseTable,
    targets_M: Tensor,
    weights_M: Tensor,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """`LossHead.loss`; and the targets that count, their log P(y), and P(s) of their senses (·, J)."""
    hidden_MD, targets_M, weights_M = counted(hidden_MD, targets_M, weights_M, smoothing)
    loss, logp_M, usage_MJ = _KerbsLoss.apply(  # type: ignore[no-untyped-call]
        hidden_MD, senses_SD, theta_S, table, targets_M, weights_M, smoothing, torch.is_grad_enabled()
    )
    # Not a product of vectors, which autocast would take, and round, in half precision.
    nll = -(weights_M.to(logp_M.dtype) * logp_M).sum()
    return loss, nll, (targets_M, logp_M, usage_MJ)


def _strips(rows: int, senses: int) -> Iterator[slice]:
    size = max(1, STRIP // senses)
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
        wanted = with_gradients and any(ctx.needs_input_grad[:3])
        given = hidden_MD.to(full), senses_SD.to(full), theta_S.to(full), table
        with torch.autocast(hidden_MD.device.type, enabled=False):
            sums = _Sums(*given, smoothing, wanted)
            for rows in sums.chunks:
                sums.add(rows, targets_M[rows], weights_M[rows].to(full))
            if wanted:
                grads = (sums.grad_hidden_MD, *sums.by_sense())
                dtypes = (it.dtype for it in (hidden_MD, senses_SD, theta_S))
                ctx.save_for_backward(*(it.to(dtype) for it, dtype in zip(grads, dtypes, strict=True)))
        ctx.mark_non_differentiable(sums.logp_M, sums.usage_MJ)
        return sums.loss, sums.logp_M, sums.usage_MJ

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_order()
        wanted = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        return (*(it * outer[0] if want else None for it, want in wanted), None, None, None, None, None)


class _Sums:
    """Loss and gradients so far, and the room in which a chunk's scores are computed."""

    def __init__(
        self,
        hidden_MD: Tensor,
        senses_SD: Tensor,
        theta_S: Tensor,
        table: SenseTable,
        smoothing: float,
        wanted: bool,
    ) -> None:
        tiny = shortest(hidden_MD)
        # Rows of scores have a length that products of matrices like: the senses that fill it up score −∞.
        self.count, padding = len(senses_SD), -len(senses_SD) % ALIGNED
        senses_SD = F.pad(senses_SD.index_select(0, table.order_S), (0, 0, 0, padding))
        theta_S = F.pad(theta_S[table.order_S], (0, padding))
        self.hidden_MD, self.senses_SD, self.table = hidden_MD, senses_SD, table
        self.places_VJ = table.places_S[table.senses_VJ]
        self.smoothing, self.wanted = smoothing, wanted
        self.lengths_M1 = lengths(hidden_MD)
        self.unit_MD = hidden_MD / self.lengths_M1.clamp_min(tiny)
        self.lengths_S = lengths(senses_SD)[:, 0].clamp_min(tiny)
        self.inside_S, self.theta_S = theta_S.abs() <= LARGEST, bounded(theta_S)
        self.kappa_S, _ = scale(self.theta_S)
        self.gain_S = -self.kappa_S / self.theta_S * self.lengths_S
        self.turned_SD = senses_SD * (-self.theta_S / self.lengths_S)[:, None]
        self.flat_K = (self.theta_S[: self.count].abs() < FLAT[hidden_MD.dtype]).nonzero()[:, 0]
        # By words, not senses: as many rows as a softmax takes, for products of fewer are slower.
        self.chunks = list(chunks(len(hidden_MD), len(table.senses_VJ)))
        size = self.chunks[0].stop if self.chunks else 0
        strip = next(_strips(size, len(senses_SD)), slice(0, 0)).stop
        self.room_RS = hidden_MD.new_empty(size, len(senses_SD))
        self.strips = hidden_MD.new_empty(3, strip, len(senses_SD))
        self.loss = hidden_MD.new_zeros(())
        self.logp_M = hidden_MD.new_empty(len(hidden_MD))
        self.usage_MJ = hidden_MD.new_empty(len(hidden_MD), table.senses_VJ.shape[1])
        if wanted:
            self.pull_SD = self.kappa_S[:, None] * senses_SD
            self.grad_hidden_MD = torch.empty_like(hidden_MD)
            self.b_SD, self.p_S = torch.zeros_like(senses_SD), torch.zeros_like(theta_S)
            self.x_K = hidden_MD.new_zeros(len(self.flat_K))
            self.factor_M1, self.by_length_M1 = (torch.empty_like(self.lengths_M1) for _ in range(2))

    def add(self, rows: slice, targets_R: Tensor, weights_R: Tensor) -> None:
        """Loss and, where they are wanted, gradients of some rows."""
        x_RS = self.room_RS[: rows.stop - rows.start]
        torch.mm(self.unit_MD[rows], self.turned_SD.t(), out=x_RS)
        for part in _strips(len(x_RS), x_RS.shape[1]):
            strip = slice(rows.start + part.start, rows.start + part.stop)
            self._add_strip(strip, x_RS[part], targets_R[part], weights_R[part])
        if self.wanted:
            unit_RD, q_RS, factor_R1 = self.unit_MD[rows], x_RS, self.factor_M1[rows]
            turn_RD = q_RS @ self.pull_SD
            along_R1 = self.by_length_M1[rows] - (unit_RD * turn_RD).sum(-1, keepdim=True)
            torch.mul(turn_RD.addcmul_(unit_RD, along_R1), factor_R1, out=self.grad_hidden_MD[rows])
            self.b_SD.addmm_(q_RS.t(), self.hidden_MD[rows] * factor_R1)

    def _add_strip(self, rows: slice, x_RS: Tensor, targets_R: Tensor, weights_R: Tensor) -> None:
        """All but the products of matrices.

        Large tensors are written over again and again: z becomes exp(z − top), and that G, up to the factor
        weight / Σ exp(z − top) of its row; E becomes G·E; x becomes G·(E + 1), which the products read.
        """
        e_RS, z_RS, spare_RS = self.strips[:, : len(x_RS)]
        torch.expm1(x_RS, out=e_RS)
        torch.mul(e_RS, self.gain_S, out=z_RS).mul_(self.lengths_M1[rows])
        z_RS[:, self.count :] = -torch.inf

        own = _Own.of(z_RS, self.places_VJ[targets_R], self.table.real_VJ[targets_R])
        top_R1 = z_RS.amax(-1, keepdim=True)
        words = _Words(self.table, z_RS, top_R1, spare_RS) if self.smoothing else None
        exp_RS = z_RS.sub_(top_R1).exp_()
        sum_R1 = exp_RS.sum(-1, keepdim=True)
        mean_R = own.log_R if words is None else words.mean(exp_RS)
        self._add_loss(rows, weights_R, own, (top_R1 + sum_R1.log())[:, 0], mean_R)
        if not self.wanted:
            return

        if words is not None:
            words.pull(exp_RS, sum_R1 * (self.smoothing / len(self.places_VJ)))
        g_RS = own.pull(exp_RS, sum_R1, 1.0 - self.smoothing)
        self._add_gradients(rows, x_RS, e_RS, g_RS, spare_RS, weights_R[:, None] / sum_R1)

    def _add_loss(self, rows: slice, weights_R: Tensor, own: _Own, total_R: Tensor, mean_R: Tensor) -> None:
        """Σ weight · [ logsumexp_s z_s − (1 − s)·logsumexp_{s ∈ i} z_s − s·(mean over words) ]."""
        self.logp_M[rows] = own.log_R - total_R
        self.usage_MJ[rows] = (own.z_RJ - total_R[:, None]).exp()
        s = self.smoothing
        self.loss += weights_R @ (total_R - (1.0 - s) * own.log_R - s * mean_R)

    def _add_gradients(
        self, rows: slice, x_RS: Tensor, e_RS: Tensor, g_RS: Tensor, spare_RS: Tensor, factor_R1: Tensor
    ) -> None:
        """P and X of every sense; of every row its factor and Σ_s G·E·gain; and x becomes G·(E + 1)."""
        ge_RS = e_RS.mul_(g_RS)
        reach_R = (factor_R1 * self.lengths_M1[rows])[:, 0]
        self.p_S.addmv_(ge_RS.t(), reach_R)
        if len(self.flat_K):
            self._bend(x_RS, ge_RS, spare_RS, reach_R / 12.0)
        torch.add(ge_RS, g_RS, out=x_RS)
        self.factor_M1[rows], self.by_length_M1[rows] = factor_R1, (ge_RS @ self.gain_S)[:, None]

    def _bend(self, x_RS: Tensor, ge_RS: Tensor, out_RS: Tensor, reach_R: Tensor) -> None:
        """Add 12·|h|·G·F of the senses whose θ is small to X. If these are not few, it is quicker to compute
        it for all: picking columns costs more."""
        few = len(self.flat_K) < x_RS.shape[1] // FEW
        if few:
            x_RS, ge_RS = x_RS.index_select(1, self.flat_K), ge_RS.index_select(1, self.flat_K)
            out_RS = torch.empty_like(x_RS)
        square_RS = torch.mul(x_RS, x_RS, out=out_RS)
        torch.addcmul(x_RS, square_RS, x_RS, value=-1.0 / 60.0, out=out_RS)
        sums = out_RS.add_(6.0).mul_(x_RS).mul_(ge_RS).t().mv(reach_R)
        self.x_K += sums if few else sums[self.flat_K]

    def by_sense(self) -> tuple[Tensor, Tensor]:
        """Gradients of the senses' vectors and of θ, from the sums P, B and X."""
        along_S = torch.einsum("sd,sd->s", self.senses_SD, self.b_SD) / self.lengths_S
        # In double precision: two differences, one after the other.
        theta_S, p_S = self.theta_S.double(), self.p_S.double()
        kappa_S, slope_S = scale(theta_S)
        x_S = -theta_S * along_S.double() - p_S
        x_S[self.flat_K] = self.x_K.double()
        by_theta_S = (slope_S / theta_S * p_S + kappa_S / theta_S**2 * x_S).to(along_S)
        radial_S = -(self.p_S / self.theta_S + along_S) * self.kappa_S / self.lengths_S
        by_vector_SD = self.b_SD.mul_(self.kappa_S[:, None]).addcmul_(self.senses_SD, radial_S[:, None])
        by_theta_S = -self.lengths_S * by_theta_S * self.inside_S
        return by_vector_SD.index_select(0, self.table.places_S), by_theta_S[self.table.places_S]


@dataclass(frozen=True)
class _Own:
    """The senses of each row's target: where they stand, their z (−∞ where there are no more), and the log of
    the sum of their exponentials."""

    places_RJ: Tensor
    z_RJ: Tensor
    log_R: Tensor

    @classmethod
    def of(cls, z_RS: Tensor, places_RJ: Tensor, real_RJ: Tensor) -> _Own:
        """Those at these places of z, as far as they are real."""
        z_RJ = z_RS.gather(1, places_RJ).masked_fill_(~real_RJ, -torch.inf)
        return cls(places_RJ, z_RJ, z_RJ.logsumexp(-1))

    def pull(self, exp_RS: Tensor, sum_R1: Tensor, share: float) -> Tensor:
        """Take share·P(s | i)·Σ exp(z − top) from the target's own exp(z − top)."""
        own_RJ = (self.z_RJ - self.log_R[:, None]).exp()
        return exp_RS.scatter_add_(1, self.places_RJ, -share * own_RJ * sum_R1)


class _Words:
    """What smoothed labels need of a strip: log Σ_j exp z_ij of every word, and P(s | word of s).

    Both come from exp(z − top), which is there anyhow, unless a word is so improbable that it has no digits.
    """

    def __init__(self, table: SenseTable, z_RS: Tensor, top_R1: Tensor, spare_RS: Tensor) -> None:
        self.table, self.top_R1, self.spare_RS = table, top_R1, spare_RS
        self.single = slice(table.several, len(table.senses_VJ))
        self.total_R = z_RS[:, self.single].sum(-1)
        self.logs_RW: Tensor | None = None
        real = len(table.words_S)
        if table.several and bool((z_RS[:, :real].amin(-1, keepdim=True) < top_R1 - DEEP).any()):
            self.logs_RW = table.folded(z_RS, torch.logaddexp)
            for senses, words in table.blocks():
                torch.sub(z_RS[:, senses], self.logs_RW[:, words], out=spare_RS[:, senses]).exp_()

    def mean(self, exp_RS: Tensor) -> Tensor:
        """The mean of the words' logarithms, given exp(z − top)."""
        if self.logs_RW is None:
            self.sums_RW = self.table.folded(exp_RS, torch.add)
            logs_RW = torch.log(self.sums_RW, out=self.spare_RS[:, : self.table.several]).add_(self.top_R1)
        else:
            logs_RW = self.logs_RW
        return (self.total_R + logs_RW.sum(-1)) / len(self.table.senses_VJ)

    def pull(self, exp_RS: Tensor, size_R1: Tensor) -> None:
        """Take size·P(s | word of s) from every exp(z − top)."""
        exp_RS[:, self.single] -= size_R1
        if self.logs_RW is None:
            kept_RW = torch.div(size_R1, self.sums_RW, out=self.sums_RW).neg_().add_(1.0)
            for senses, words in self.table.blocks():
                exp_RS[:, senses] *= kept_RW[:, words]
        else:
            for senses, _ in self.table.blocks():
                exp_RS[:, senses] -= self.spare_RS[:, senses].mul_(size_R1)
