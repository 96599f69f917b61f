"""Softmax heads with stored weights.

    log p(y = i | h) = hᵀe_i + b_i − logsumexp_j (hᵀe_j + b_j)

Products unpack some rows at a time; `weight`, the whole matrix in float32, is unpacked if it is needed
(basis-aware sampling) and cached while it is referenced.
"""

from __future__ import annotations

from torch import Tensor, nn

from unspool.engine.stored_weights import StoredMatrix, StoredWeight
from unspool.heads.softmax import LinearSoftmax, log_prob_rank


class StoredSoftmax(StoredMatrix, LinearSoftmax):  # type: ignore[override]
    """A softmax head with its own output matrix."""

    @property
    def rank_limit(self) -> int:
        """See `interfaces.Head`."""
        return log_prob_rank(self.columns, self.bias)

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V): logits."""
        return self.product(hidden)

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Like `LinearSoftmax`, without gradients."""
        self.refuse_gradients(hidden_MD)
        return super().loss(hidden_MD, targets_M, weights_M, smoothing)


class TiedStoredSoftmax(LinearSoftmax):
    """A softmax head whose output matrix is a stored embedding; its only parameter is an optional bias."""

    def __init__(self, embed: StoredMatrix, bias: Tensor | None = None) -> None:
        super().__init__()
        self._embed = (embed,)  # in a tuple, so that torch does not register the embedding twice
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    @property
    def pieces(self) -> tuple[StoredWeight, ...]:
        """The stored weights of the embedding."""
        return self._embed[0].pieces

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """(V, D): the embedding matrix."""
        return self._embed[0].weight

    @property
    def rank_limit(self) -> int:
        """See `interfaces.Head`."""
        return log_prob_rank(self._embed[0].columns, self.bias)

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V): logits."""
        scores = self._embed[0].product(hidden)
        return scores if self.bias is None else scores.add_(self.bias)

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Like `LinearSoftmax`, without gradients."""
        self._embed[0].refuse_gradients(hidden_MD)
        return super().loss(hidden_MD, targets_M, weights_M, smoothing)
