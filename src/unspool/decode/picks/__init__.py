"""Picks: how one token is drawn from a row of scores."""

from unspool.decode.picks.argmax import ArgMax
from unspool.decode.picks.multinomial import Multinomial

PICKS: dict[str, type] = {"ArgMax": ArgMax, "Multinomial": Multinomial}

__all__ = ["PICKS", "ArgMax", "Multinomial"]
