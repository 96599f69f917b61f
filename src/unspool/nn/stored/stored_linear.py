"""A linear layer, and an embedding, whose weights stay as they are stored."""

from __future__ import annotations

from torch import Tensor

from unspool.nn.stored.matrix import StoredMatrix


class StoredLinear(StoredMatrix):
    """x → x · Wᵀ + b; the rows of W may be of several formats (queries, keys and values often are)."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        return self.product(x)


class StoredEmbedding(StoredMatrix):
    """token → its row of W, which alone is restored."""

    @property
    def num_embeddings(self) -> int:
        """Tokens, as torch calls them."""
        return self.rows

    @property
    def embedding_dim(self) -> int:
        """Width, as torch calls it."""
        return self.columns

    def forward(self, tokens: Tensor) -> Tensor:
        """(…) → (…, width)."""
        return self.take(tokens)
