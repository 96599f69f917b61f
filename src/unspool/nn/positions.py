"""Position encodings: sinusoidal, learned, rotary (RoPE, with Llama 3 and YaRN scaling) and relative (T5).

    sinusoidal   p_t = (sin ω₁t, cos ω₁t, sin ω₂t, …), ω_i = 10000^(−2i/D)   Vaswani et al. 2017, §3.5
                 (papers.bib: vaswani2017attention); p_{t+k} is a fixed rotation of p_t
                 Marian orders the same numbers differently: all sines, then all cosines
    learned      p_t is a row of a matrix
    rotary       each pair (x_i, x_{i+I/2}) of a query or key is rotated by the angle ω_i t, so their inner
                 product depends only on the distance     Su et al. 2021, eq. 34 (papers.bib: su2021roformer)

Differs from the paper: rotary pairs are (i, i + I/2), as in Llama weights, not (2i, 2i+1). Tables are
always float32, because half precision cannot distinguish far positions; outputs have the dtype of the
model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Sinusoidal(nn.Module):
    """Sinusoidal positions; a table without weights that grows when needed."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.width, self.context = width, context
        self._table_TD: Tensor | None = None

    def forward(self, positions_NT: Tensor) -> Tensor:
        last, device, table_TD = int(positions_NT.max()), positions_NT.device, self._table_TD
        if table_TD is None or len(table_TD) <= last or table_TD.device != device:
            table_TD = self._table_TD = self._build(max(64, 2 * (last + 1)), device)
        return table_TD[positions_NT]

    @torch.inference_mode(False)  # a table built while decoding must also work in training
    def _build(self, length: int, device: torch.device) -> Tensor:
        half = torch.arange(self.width // 2, device=device, dtype=torch.float32)
        omega = torch.exp(half * (-2 * math.log(10000.0) / self.width))
        angle = torch.outer(torch.arange(length, device=device, dtype=torch.float32), omega)
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class SinusoidalHalves(Sinusoidal):
    """The same waves in Marian's order: all sines, then all cosines."""

    @torch.inference_mode(False)
    def _build(self, length: int, device: torch.device) -> Tensor:
        # In float64, like Marian's tables, so that trained models see the values they were trained on.
        omega = 10000.0 ** (-torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        angle = torch.outer(torch.arange(length, dtype=torch.float64), omega)
        return torch.cat((angle.sin(), angle.cos()), dim=-1).float().to(device)


class Learned(nn.Embedding):
    """Learned positions: one vector per position of the context."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__(context, width)

    def forward(self, positions_NT: Tensor) -> Tensor:
        self.check(int(positions_NT.max()))
        return super().forward(positions_NT)

    def check(self, last: int) -> None:
        """Reject positions that were not learned."""
        if last >= self.num_embeddings:
            raise ValueError(
                f"a row has {last + 1} tokens, but the model has {self.num_embeddings} learned positions: "
                "shorten the text"
            )


ADDED_POSITIONS: dict[str, type[Sinusoidal] | type[Learned]] = {
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "sinusoidal_halves": SinusoidalHalves,
}


@dataclass(frozen=True)
class RotaryScaling:
    """Llama 3's scaling of low frequencies for contexts longer than the original one."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int

    magnitude = 1.0

    def frequencies(self, omega: Tensor, base: float = 0.0) -> Tensor:  # noqa: ARG002
        """Divide frequencies of waves longer than the original context by `factor`, keep the others."""
        turns = self.original_context * omega / (2 * math.pi)
        blend = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        blend = blend.clamp(0, 1)
        return omega * (blend + (1 - blend) / self.factor)


@dataclass(frozen=True)
class YarnScaling:
    """YaRN scaling: keep high frequencies, divide low ones by `factor`, and blend those between.

        ω′_i = ω_i · (1 − r_i) / s + ω_i · r_i,   r_i = 1 − clamp((i − lo)/(hi − lo), 0, 1)
        cos, sin  ←  (0.1 ln s + 1) · cos, sin

    Peng et al. 2023, eq. 23 and §3.4 (papers.bib: peng2023yarn). lo and hi are the pairs that rotate
    `beta_fast` and `beta_slow` times in the original context.
    """

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    """The factor of cos and sin; None means 0.1 ln s + 1."""
    truncate: bool = True
    """Round lo and hi to integers."""

    def frequencies(self, omega: Tensor, base: float) -> Tensor:
        width = 2 * len(omega)

        def pair(turns: float) -> float:
            return width * math.log(self.original_context / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = pair(self.beta_fast), pair(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        high += 0.001 if low == high else 0
        place = torch.arange(len(omega), dtype=torch.float32, device=omega.device)
        kept = 1 - ((place - low) / (high - low)).clamp(0, 1)
        return omega * (kept + (1 - kept) / self.factor)

    @property
    def magnitude(self) -> float:
        """The factor of cos and sin."""
        if self.attention_factor is not None:
            return self.attention_factor
        return 1.0 if self.factor <= 1 else 0.1 * math.log(self.factor) + 1.0


class Rotary:
    """Rotary positions (RoPE): rotate queries and keys by their position; tables grow when needed.

    The first `turned_width` of `head_width` numbers are rotated; None means all. Frequencies are divided by
    `factor` (position interpolation: Chen et al. 2023, eq. 4, papers.bib: chen2023extending).
    """

    def __init__(
        self,
        head_width: int,
        base: float = 10000.0,
        scaling: RotaryScaling | YarnScaling | None = None,
        turned_width: int | None = None,
        factor: float = 1.0,
    ) -> None:
        self.base, self.scaling, self.factor = base, scaling, factor
        self.turned_width = head_width if turned_width is None else turned_width
        self._tables: tuple[Tensor, Tensor] | None = None

    def tables(self, positions_NT: Tensor, needed: int) -> tuple[Tensor, Tensor]:
        """cos and signed sin of every angle, (N, T, 1, I), for positions below `needed`."""
        tables, device = self._tables, positions_NT.device
        if tables is None or len(tables[0]) < needed or tables[0].device != device:
            tables = self._tables = self._build(max(64, 2 * needed), device)
        return tables[0][positions_NT].unsqueeze(2), tables[1][positions_NT].unsqueeze(2)

    @torch.inference_mode(False)  # a table built while decoding must also work in training
    def _build(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        half = torch.arange(0, self.turned_width, 2, dtype=torch.float32, device=device)
        omega = 1.0 / (self.base ** (half / self.turned_width)) / self.factor
        magnitude = 1.0
        if self.scaling is not None:
            omega, magnitude = self.scaling.frequencies(omega, self.base), self.scaling.magnitude
        angle = torch.outer(torch.arange(length, dtype=torch.float32, device=device), omega)
        cos, sin = angle.cos() * magnitude, angle.sin() * magnitude
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def rotate(x_NTHI: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(x₁, x₂) → (x₁ cos − x₂ sin, x₂ cos + x₁ sin), halves of the last axis; `sin` includes the sign.

    Numbers beyond the width of cos and sin are unchanged.
    """
    width = cos.shape[-1]
    if width < x_NTHI.shape[-1]:
        return torch.cat((rotate(x_NTHI[..., :width], cos, sin), x_NTHI[..., width:]), dim=-1)
    turned = torch.addcmul(x_NTHI * cos, x_NTHI.roll(x_NTHI.shape[-1] // 2, dims=-1), sin)
    return turned if turned.dtype == x_NTHI.dtype else turned.to(x_NTHI.dtype)


def add_positions(x: Tensor, positions: Tensor) -> Tensor:
    return (x + positions).to(x.dtype)


class RelativePositions(nn.Module):
    """T5's relative positions: a learnt bias per head and bucket of distances, added to the scores.

        α[k,t,s] = softmax_s( Q[k,t]·K[k,s] / √I + b[k, bucket(s − t)] )

    Raffel et al. 2020, §2.1 (T5, papers.bib: raffel2020exploring). Of the B buckets per direction, the
    first B/2 hold one distance each, the others logarithmically more, up to the distance M; the last one
    also holds all larger distances.

        bucket(d) = d  if d < B/2,   else min(B − 1, B/2 + ⌊B/2 · ln(d / (B/2)) / ln(M / (B/2))⌋)

    Unless causal, each direction has half of the buckets. All layers share one table. Symbols: B `buckets`,
    M `distance`.
    """

    def __init__(self, heads: int, buckets: int, distance: int, *, causal: bool) -> None:
        super().__init__()
        self.buckets, self.distance, self.causal = buckets, distance, causal
        self.weight = nn.Parameter(torch.empty(buckets, heads))
        nn.init.normal_(self.weight, std=0.1)

    def forward(self, first: int, new: int) -> Tensor:
        """(1, H, new, first + new): the bias of `new` tokens after `first` others; −∞ on masked ones."""
        device = self.weight.device
        query_T1 = torch.arange(first, first + new, device=device)[:, None]
        ahead_TS = torch.arange(first + new, device=device) - query_T1
        bias_HTS = F.embedding(self.bucket(ahead_TS), self.weight).permute(2, 0, 1)
        if self.causal and new > 1:
            bias_HTS = bias_HTS.masked_fill(ahead_TS > 0, -math.inf)
        return bias_HTS.unsqueeze(0)

    def bucket(self, ahead: Tensor) -> Tensor:
        """The buckets of signed distances; positive means ahead."""
        if self.causal:
            return self._bucket((-ahead).clamp(min=0), self.buckets)
        half = self.buckets // 2
        return self._bucket(ahead.abs(), half) + half * (ahead > 0)

    def _bucket(self, distance: Tensor, buckets: int) -> Tensor:
        exact = buckets // 2
        # In float32 and in this order, like T5's code: rounding can change the bucket.
        far = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.distance / exact)
        grown = exact + (far * (buckets - exact)).long()
        return torch.where(distance < exact, distance, grown.clamp(max=buckets - 1))
