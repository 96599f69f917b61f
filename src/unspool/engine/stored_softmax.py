"""The plain output layer with words' vectors that stay as they are stored.

    log p(y = i | h) = hᵀe_i + b_i − logsumexp_j (hᵀe_j + b_j)

The products are made some rows at a time; the matrix of all e_i is restored where it is asked for, as
basis-aware sampling does, and lasts as long as somebody holds it.
"""

from __future__ import annotations

from torch import Tensor, nn

from unspool.engine.stored_weights import StoredMatrix, StoredWeight
from unspool.heads.chunked_loss import linear_loss
from unspool.heads.softmax import log_prob_rank, log_softmax


class StoredSoftmax(StoredMatrix):
    """Softmax over inner products with vectors of its own."""

    @property
    def rank_limit(self) -> int:
        """As `protocols.Head` says."""
        return log_prob_rank(self.columns, self.bias)

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V), not normalised."""
        return self.product(hidden)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return log_softmax(self.logits(hidden))

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Weighted sums of what would be minimised and of −log p, without gradients."""
        self.refuse_gradients(hidden_MD)
        return linear_loss(hidden_MD, self.weight, self.bias, targets_M, weights_M, smoothing)


class TiedStoredSoftmax(nn.Module):
    """The same, with the rows of a stored embedding as its vectors. It owns no weights but a bias."""

    def __init__(self, embed: StoredMatrix, bias: Tensor | None = None) -> None:
        super().__init__()
        self._embed = (embed,)  # in a tuple, so that torch does not register the embedding twice
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    @property
    def pieces(self) -> tuple[StoredWeight, ...]:
        """The embedding's."""
        return self._embed[0].pieces

    @property
    def weight(self) -> Tensor:
        """(V, D): the embedding's."""
        return self._embed[0].weight

    @property
    def rank_limit(self) -> int:
        """As `protocols.Head` says."""
        return log_prob_rank(self._embed[0].columns, self.bias)

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V), not normalised."""
        scores = self._embed[0].product(hidden)
        return scores if self.bias is None else scores.add_(self.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return log_softmax(self.logits(hidden))

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Weighted sums of what would be minimised and of −log p, without gradients."""
        self._embed[0].refuse_gradients(hidden_MD)
        return linear_loss(hidden_MD, self.weight, self.bias, targets_M, weights_M, smoothing)
