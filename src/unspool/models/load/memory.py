"""Too little memory for a model, said in words: what did not fit, and what would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from unspool.memory_shortage import is_shortage
from unspool.models.load.kept_weights import Weights

LESS: dict[Weights, str] = {
    "float32": 'weights="as stored" leaves them in their file, weights="int8" takes a quarter',
    "int8": 'weights="as stored" leaves them in their file',
    "as stored": "a smaller model, or one that is packed into fewer bits, takes less",
}
"""How weights are kept → what takes less."""


@contextmanager
def fitting(name: str, weights: Weights) -> Iterator[None]:
    """A MemoryError with the model's name, whoever could not get the memory: Python, torch or the system."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        if not is_shortage(error):
            raise
        raise MemoryError(
            f"{name}: there is not enough memory for this model with weights={weights!r}: {LESS[weights]}"
        ) from error
