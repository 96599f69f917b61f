"""What the tests on one distribution share, each part made when it is first needed."""

from __future__ import annotations

from functools import cached_property

from unspool.basis.arrays import Array
from unspool.basis.solver.acceptance_proof import Evaluator
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.least_squares import LeastSquares
from unspool.basis.solver.lewis_metric import Metric, Selection, everything, head, head_and_sample
from unspool.basis.solver.rejection_proof import Balance
from unspool.basis.solver.whitening import Whitened

# The fewest rows that are worth a level of the search.
FIRST = 256


class SharedFactors:
    """The distribution, sorted; the least-squares factor; the metrics of each level."""

    def __init__(self, white: Whitened, p_V: Array) -> None:
        self.white = white
        self.dist = Distribution(p_V, white.X_VK.shape[1])
        self.evaluator = Evaluator(white, self.dist)
        width = white.X_VK.shape[1]
        self.first: int = min(max(FIRST, 1 << (2 * width).bit_length() - 1), self.dist.support)
        """Rows of the first level: about twice as many as unknowns."""
        self._heads: dict[int, Metric] = {}
        self._selections: dict[int, Selection] = {}
        self._samples: dict[int, Metric] = {}
        self._balances: dict[int, Balance] = {}

    @cached_property
    def least_squares(self) -> LeastSquares:
        """The factor of the most probable rows."""
        return LeastSquares(self.white, self.dist)

    @cached_property
    def whole(self) -> Metric:
        """The metric of the whole vocabulary."""
        return Metric(self.white, self.dist, everything(self.white, self.dist))

    def head(self, n: int) -> Metric:
        """The metric of the n most probable rows."""
        if n not in self._heads:
            rows = head(self.white, self.dist, n)
            self._heads[n] = Metric(self.white, self.dist, rows, self._part(n))
        return self._heads[n]

    def sampled(self, n: int) -> Metric:
        """The metric of the n most probable rows and as many or more that stand for the others."""
        if n not in self._samples:
            self._samples[n] = Metric(self.white, self.dist, self.selection(n), self._part(n))
        return self._samples[n]

    def selection(self, n: int) -> Selection:
        """Its rows."""
        if n not in self._selections:
            self._selections[n] = head_and_sample(self.white, self.dist, n, max(n, 2 * self.first))
        return self._selections[n]

    def balance(self, n: int) -> Balance:
        """What makes multipliers exact on the n most probable rows."""
        if n not in self._balances:
            self._balances[n] = Balance(self.white, self.dist, self.head(n))
        return self._balances[n]

    def _part(self, n: int) -> Metric | None:
        """The largest metric that is there already and whose rows are among the n most probable."""
        return self._heads.get(max((k for k in self._heads if k <= n), default=0))
