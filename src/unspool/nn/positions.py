"""How a Transformer knows where a token stands.

    sinusoidal   p_t = (sin ω₁t, cos ω₁t, sin ω₂t, …), ω_i = 10000^(−2i/D)   Vaswani et al. 2017, §3.5
                 (papers.bib: vaswani2017attention); p_{t+k} is a fixed rotation of p_t
                 the halves of p_t are all sines and all cosines: Marian's order of the same numbers
    learned      p_t is a row of a matrix
    rotary       each pair (x_i, x_{i+I/2}) of a query or key is turned by the angle ω_i t, so that their
                 inner product knows only the distance    Su et al. 2021, eq. 34 (papers.bib: su2021roformer)

Differs from the paper: rotary pairs are (i, i + I/2), as Llama weights have them, not (2i, 2i+1).
Tables are in single precision, whatever the model is in: half of one cannot tell far positions apart. What
comes out is in the model's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Sinusoidal(nn.Module):
    """Fixed waves of falling frequency. Holds no weights, only a table that grows when needed."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {width}")
        self.width, self.context = width, context
        self._table_TD: Tensor | None = None

    def forward(self, positions_NT: Tensor) -> Tensor:
        """(N, T) → (N, T, D)."""
        return self._table(int(positions_NT.max()), positions_NT.device)[positions_NT]

    def at(self, position: int, device: torch.device) -> Tensor:
        """(D): one position."""
        return self._table(position, device)[position]

    def _table(self, last: int, device: torch.device) -> Tensor:
        table_TD = self._table_TD
        if table_TD is None or len(table_TD) <= last or table_TD.device != device:
            table_TD = self._table_TD = self._build(max(64, 2 * (last + 1)), device)
        return table_TD

    @torch.inference_mode(False)  # a table made while decoding must serve training, too
    def _build(self, length: int, device: torch.device) -> Tensor:
        half = torch.arange(self.width // 2, device=device, dtype=torch.float32)
        omega = torch.exp(half * (-2 * math.log(10000.0) / self.width))
        angle = torch.outer(torch.arange(length, device=device, dtype=torch.float32), omega)
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class SinusoidalHalves(Sinusoidal):
    """The same waves in Marian's order: all sines, then all cosines."""

    @torch.inference_mode(False)
    def _build(self, length: int, device: torch.device) -> Tensor:
        # In double precision, as Marian's tables are made: so trained models read what they were trained on.
        omega = 10000.0 ** (-torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        angle = torch.outer(torch.arange(length, dtype=torch.float64), omega)
        return torch.cat((angle.sin(), angle.cos()), dim=-1).float().to(device)


class Learned(nn.Embedding):
    """One learnt vector for each place in the context."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__(context, width)

    def forward(self, positions_NT: Tensor) -> Tensor:
        """(N, T) → (N, T, D)."""
        self._check(int(positions_NT.max()))
        return super().forward(positions_NT)

    def at(self, position: int, device: torch.device) -> Tensor:  # noqa: ARG002
        """(D): one position."""
        self._check(position)
        return self.weight[position]

    def _check(self, last: int) -> None:
        if last >= self.num_embeddings:
            raise ValueError(
                f"a row has {last + 1} tokens, and this model has learnt {self.num_embeddings} positions: "
                "stop before, or shorten the text"
            )


ADDED: dict[str, type[Sinusoidal] | type[Learned]] = {
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "sinusoidal_halves": SinusoidalHalves,
}


@dataclass(frozen=True)
class RotaryScaling:
    """Llama 3's stretching of low frequencies to contexts longer than those trained on first."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int

    magnitude = 1.0

    def frequencies(self, omega: Tensor, base: float) -> Tensor:  # noqa: ARG002
        """As `__call__` has them."""
        return self(omega)

    def __call__(self, omega: Tensor) -> Tensor:
        """Waves longer than the original context slow down by `factor`, short ones stay."""
        turns = self.original_context * omega / (2 * math.pi)
        blend = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        blend = blend.clamp(0, 1)
        return omega * (blend + (1 - blend) / self.factor)


@dataclass(frozen=True)
class YarnScaling:
    """YaRN: short waves stay, long ones slow down by `factor`, those between are blended; scores grow a bit.

        ω′_i = ω_i · (1 − r_i) / s + ω_i · r_i,   r_i = 1 − clamp((i − lo)/(hi − lo), 0, 1)
        cos, sin  ←  (0.1 ln s + 1) · cos, sin

    Peng et al. 2023, eq. 23 and §3.4 (papers.bib: peng2023yarn). lo and hi are the pairs that turn
    `beta_fast` and `beta_slow` times in the original context.
    """

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    """What cos and sin are multiplied by; None is 0.1 ln s + 1."""
    truncate: bool = True
    """Whether lo and hi are whole numbers."""

    def frequencies(self, omega: Tensor, base: float) -> Tensor:
        """ω′ of every pair."""
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
        """What cos and sin are multiplied by."""
        if self.attention_factor is not None:
            return self.attention_factor
        return 1.0 if self.factor <= 1 else 0.1 * math.log(self.factor) + 1.0


class Rotary:
    """Turns queries and keys by their position. Holds no weights, only tables that grow when needed.

    Of a head of `head_width` numbers the first `turned_width` are turned; None is all of them. All waves are
    slower by `factor` (position interpolation: Chen et al. 2023, eq. 4, papers.bib: chen2023extending).
    """

    def __init__(
        self,
        head_width: int,
        base: float = 10000.0,
        scaling: RotaryScaling | YarnScaling | None = None,
        turned_width: int | None = None,
        factor: float = 1.0,
    ) -> None:
        self.head_width, self.base, self.scaling, self.factor = head_width, base, scaling, factor
        self.turned_width = head_width if turned_width is None else turned_width
        if self.turned_width % 2:
            raise ValueError(f"rotary positions need an even head width, not {self.turned_width}")
        self._cos_TI: Tensor | None = None
        self._sin_TI: Tensor | None = None

    def tables(self, positions_NT: Tensor, needed: int) -> tuple[Tensor, Tensor]:
        """cos and signed sin of every angle, (N, T, 1, I), for positions below `needed`."""
        cos_TI, sin_TI = self._tables(needed, positions_NT.device)
        return cos_TI[positions_NT].unsqueeze(2), sin_TI[positions_NT].unsqueeze(2)

    def at(self, position: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """cos and signed sin of the angles of one position, (I)."""
        cos_TI, sin_TI = self._tables(position + 1, device)
        return cos_TI[position], sin_TI[position]

    def _tables(self, needed: int, device: torch.device) -> tuple[Tensor, Tensor]:
        cos_TI, sin_TI = self._cos_TI, self._sin_TI
        if cos_TI is None or sin_TI is None or len(cos_TI) < needed or cos_TI.device != device:
            cos_TI, sin_TI = self._cos_TI, self._sin_TI = self._build(max(64, 2 * needed), device)
        return cos_TI, sin_TI

    @torch.inference_mode(False)  # a table made while decoding must serve training, too
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
    """(x₁, x₂) → (x₁ cos − x₂ sin, x₂ cos + x₁ sin), halves of the last axis; `sin` carries the sign.

    What stands behind the width of cos and sin stays as it is.
    """
    width = cos.shape[-1]
    if width < x_NTHI.shape[-1]:
        return torch.cat((rotate(x_NTHI[..., :width], cos, sin), x_NTHI[..., width:]), dim=-1)
    turned = torch.addcmul(x_NTHI * cos, x_NTHI.roll(x_NTHI.shape[-1] // 2, dims=-1), sin)
    return turned if turned.dtype == x_NTHI.dtype else turned.to(x_NTHI.dtype)


def placed(x: Tensor, positions: Tensor) -> Tensor:
    """x + p."""
    return (x + positions).to(x.dtype)


class RelativePositions(nn.Module):
    """A number for every head and every bucket of distances.

    How far apart two tokens are, as a number that is added to their score.

        α[k,t,s] = softmax_s( Q[k,t]·K[k,s] / √I + b[k, bucket(s − t)] )

    Raffel et al. 2020, §2.1 (T5, papers.bib: raffel2020exploring). Of the B buckets of one direction the
    first B/2 hold one distance each, the others ever more of them, up to the distance M; the last has all the
    rest:

        bucket(d) = d  where d < B/2,   else min(B − 1, B/2 + ⌊B/2 · ln(d / (B/2)) / ln(M / (B/2))⌋)

    A causal model looks in one direction; otherwise each direction has half of the buckets. One table serves
    all layers. Symbols: B `buckets`, M `distance`.
    """

    def __init__(self, heads: int, buckets: int, distance: int, *, causal: bool) -> None:
        super().__init__()
        self.buckets, self.distance, self.causal = buckets, distance, causal
        self.weight = nn.Parameter(torch.empty(buckets, heads))
        nn.init.normal_(self.weight, std=0.1)

    def forward(self, first: int, new: int) -> Tensor:
        """(1, H, new, first + new): what is added to the scores of so many tokens behind `first` others.

        −∞ where a causal model may not look.
        """
        device = self.weight.device
        query_T1 = torch.arange(first, first + new, device=device)[:, None]
        ahead_TS = torch.arange(first + new, device=device) - query_T1
        bias_HTS = F.embedding(self.bucket(ahead_TS), self.weight).permute(2, 0, 1)
        if self.causal and new > 1:
            bias_HTS = bias_HTS.masked_fill(ahead_TS > 0, -math.inf)
        return bias_HTS.unsqueeze(0)

    def bucket(self, ahead: Tensor) -> Tensor:
        """Of tokens that stand so many places ahead; those behind are negative."""
        if self.causal:
            return self._bucket((-ahead).clamp(min=0), self.buckets)
        half = self.buckets // 2
        return self._bucket(ahead.abs(), half) + half * (ahead > 0)

    def _bucket(self, distance: Tensor, buckets: int) -> Tensor:
        exact = buckets // 2
        # In single precision and in this order, as T5's own code: a rounding decides about the bucket.
        far = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.distance / exact)
        grown = exact + (far * (buckets - exact)).long()
        return torch.where(distance < exact, distance, grown.clamp(max=buckets - 1))
