"""The memory that one step of a Transformer reads, works in and writes to."""

from __future__ import annotations

from typing import Any, NamedTuple


class Rows(NamedTuple):
    """The tokens that are read side by side."""

    tokens: Any
    """(N); empty where `Said.hidden` is given, and only the head is to read it."""
    sequences: Any
    """(N): whose past each looks at."""
    positions: Any
    """(N): its place there."""
    reach: Any
    """(N): how many tokens of the sequence it looks at: those up to itself, or all."""
    wanted: Any
    """Which rows' log-probabilities are asked for."""


class Past(NamedTuple):
    """Keys and values, and tables of positions."""

    kv: Any
    """All blocks, each (layers, K, 2, BLOCK, I) as a rule (`attention`)."""
    starts: Any
    """(sequences, blocks of each): where a block begins in kv."""
    cos: Any
    sin: Any
    """(tables · positions · turned width/2): angles of every position, one table behind another."""
    added: Any
    """(positions · D): what is added to embeddings; empty where nothing is."""
    tables: Any
    """(layers): which of these places a layer's table begins at; −1 where it turns nothing."""
    windows: Any
    """(layers): how many tokens, itself included, a token sees."""
    buckets: Any
    """(2 · positions − 1): which number is added to the score of a token so far behind or ahead; the query
    itself is in the middle. Empty where positions are not relative."""


class Source(NamedTuple):
    """Keys and values that a decoder looks at, and an encoder makes."""

    kv: Any
    """All blocks, each (the decoder's layers, K, 2, BLOCK, I)."""
    starts: Any
    """(sequences, blocks of each): where a block begins in kv."""
    lengths: Any
    """(sequences): tokens of each source."""


class Work(NamedTuple):
    """Room for what is between two phases: numbers in a row for each of N rows."""

    x: Any
    h: Any
    y: Any
    qkv: Any
    mixed: Any
    up: Any
    active: Any
    looks: Any
    """As many as `Said.looked` has."""
    ready: Any
    """A product's inputs, ready for weights of whole numbers (`products.int8`); empty where none are."""


class Said(NamedTuple):
    """What comes out."""

    hidden: Any
    """(N, D): what the head reads."""
    depths: Any
    """Which depths are asked for: 0 before the first layer, 1 behind it …"""
    early: Any
    """(depths, N, D): what the head would read there."""
    logp: Any
    """(wanted, V)."""
    log_norm: Any
    """(wanted)."""
    looked: Any
    """(N, S): where the last layer looks in the source, mean of all heads; S is a multiple of WIDTH, or 0."""
