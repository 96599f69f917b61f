"""Sampling from what the truncation rules leave, without sorting or normalising a whole vocabulary."""

from unspool.decode.shortlist.chain import draw, drawn, pays

__all__ = ["draw", "drawn", "pays"]
