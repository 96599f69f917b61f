"""The compiled steps of our recurrent models, on the memory of their own parameters, and their states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unspool.engine.compiled_state import said_one_by_one
from unspool.engine.engine_choice import logit_cap, plain_head, plain_words
from unspool.interfaces import Step
from unspool.nn.rnn_attention import AdditiveScore, BilinearScore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unspool.engine.rnn.rnn_engine import Remembered, RNNEngine, SourceMemory
    from unspool.engine.weight_table import Weights
    from unspool.models.rnn_lm import RNNLM
    from unspool.models.rnn_seq2seq import RNNSeq2Seq
    from unspool.nn.rnn import Recurrent


@dataclass(frozen=True)
class CompiledRNNState:
    """What the network remembers of every row, what its rows look at, and the compiled step that reads it."""

    engine: RNNEngine
    head: Any
    """A head that is no part of the compiled step; None where it is."""
    remembered: Remembered
    sources: SourceMemory | None = None

    def select(self, rows_M: Tensor) -> CompiledRNNState:
        """Reorder, repeat or drop rows."""
        rows = rows_M.numpy()
        sources = None if self.sources is None else self.sources.select(rows)
        return replace(self, remembered=self.remembered.select(rows), sources=sources)

    def join(self, other: CompiledRNNState) -> CompiledRNNState:
        """Take the rows of another state of the same model in, behind one's own."""
        sources = self.sources
        if sources is not None and other.sources is not None:
            sources = sources.join(other.sources)
        return replace(self, remembered=self.remembered.join(other.remembered), sources=sources)

    def step(self, tokens_N: Tensor) -> Step:
        """Append one token to every row. The state is written to."""
        plain = self.head is None
        hidden, logp, log_norm, looked = self.engine.step(
            tokens_N.numpy(), self.remembered, self.sources, say=plain
        )
        looked_NS = None
        if self.sources is not None and looked.shape[1]:
            looked_NS = torch.from_numpy(looked)[:, : self.sources.columns]
        hidden_ND = torch.from_numpy(hidden)
        if not plain:
            return replace(said_one_by_one(self.head, hidden_ND), attention=looked_NS)
        return Step(torch.from_numpy(logp), hidden_ND, looked_NS, log_norm_N=torch.from_numpy(log_norm))

    def say(self) -> Step:
        """What the head says of what is remembered now."""
        top_NH = torch.from_numpy(self.remembered.h[-1].copy())
        if self.head is not None:
            return said_one_by_one(self.head, top_NH)
        logp, log_norm = self.engine.say(top_NH.numpy())
        return Step(torch.from_numpy(logp), top_NH, log_norm_N=torch.from_numpy(log_norm))


def read_prompts(model: RNNLM, prompts: Sequence[Sequence[int]]) -> CompiledRNNState:
    """A state that has read these prompts."""
    from unspool.engine.rnn import rnn_parts
    from unspool.engine.rnn.rnn_engine import RNNEngine
    from unspool.engine.weight_table import Weights

    c = model.config
    weights = Weights(c.layers)
    _put_network(weights, model.rnn)
    _put_ends(weights, c.layers, model)
    shape = rnn_parts.RNNShape(
        c.width, c.width, c.layers, 1, rnn_parts.CELLS[c.cell], c.vocab_size, rnn_parts.NO_CONTEXT, 0, 0
    )
    engine = RNNEngine(shape._replace(logit_cap=logit_cap(model)), weights)
    return CompiledRNNState(engine, None if plain_head(model) else model.head, engine.read(prompts))


def read_sources(model: RNNSeq2Seq, sources: Sequence[Sequence[int]]) -> CompiledRNNState:
    """A state for translations of these sources, which are read."""
    decoder = _decoder(model)
    shape, states = decoder.shape, model.rnn.state_width
    memory, begun = _encoder(model).encode(sources, shape.layers * states)
    remembered = _begun(begun.reshape(len(sources), shape.layers, model.rnn.parts, shape.width))
    return CompiledRNNState(decoder, None if plain_head(model) else model.head, remembered, memory)


def _begun(begun_NLPH: Any) -> Remembered:
    from unspool.engine.rnn.rnn_engine import Remembered

    by_part = begun_NLPH.transpose(2, 1, 0, 3)  # h before c, where there is one
    return Remembered(by_part[0].copy(), by_part[1:].copy().reshape(-1, *by_part.shape[2:]))


def _encoder(model: RNNSeq2Seq) -> RNNEngine:
    from unspool.engine import weight_table
    from unspool.engine.rnn import rnn_parts
    from unspool.engine.rnn.rnn_engine import RNNEngine
    from unspool.engine.weight_table import Weights

    c, network = model.config, model.encoder.rnn
    embed = (model.source_embed or model.embed).weight
    directions = 2 if c.bidirectional else 1
    own = c.encoder_layers * directions
    weights = Weights(own)
    _put_network(weights, network)
    weights.put(own, weight_table.EMBED, embed)
    weights.put(own, rnn_parts.BEGIN, model.begin.weight, model.begin.bias)
    keyed = isinstance(model.score, AdditiveScore | BilinearScore)
    if keyed:
        weights.put(own, rnn_parts.KEY, model.score.key.weight, model.score.key.bias)
    shape = rnn_parts.RNNShape(
        c.width,
        c.width,
        c.encoder_layers,
        directions,
        rnn_parts.CELLS[c.cell],
        len(embed),
        rnn_parts.CONTEXTS[c.context_kind],
        network.out_width,
        c.width if keyed else 0,
    )
    return RNNEngine(shape, weights)


def _decoder(model: RNNSeq2Seq) -> RNNEngine:
    from unspool.engine.rnn import rnn_parts
    from unspool.engine.rnn.rnn_engine import RNNEngine
    from unspool.engine.weight_table import Weights

    c = model.config
    own = c.decoder_layers
    weights = Weights(own)
    _put_network(weights, model.rnn)
    _put_ends(weights, own, model)
    weights.put(own, rnn_parts.READOUT, model.readout.weight, model.readout.bias)
    if isinstance(model.score, AdditiveScore):
        weights.put(own, rnn_parts.QUERY, model.score.query.weight)
        weights.put(own, rnn_parts.SCORE, model.score.score.weight)
    shape = rnn_parts.RNNShape(
        c.width,
        c.width,
        own,
        1,
        rnn_parts.CELLS[c.cell],
        c.vocab_size,
        rnn_parts.CONTEXTS[c.context_kind],
        model.encoder.out_width,
        c.width,
        logit_cap(model),
    )
    return RNNEngine(shape, weights)


def _put_network(weights: Weights, network: Recurrent) -> None:
    from unspool.engine.rnn import rnn_parts

    backwards = (False, True) if network.bidirectional else (False,)
    for layer in range(network.layers):
        for direction, backward in enumerate(backwards):
            row = layer * len(backwards) + direction
            for part, which in ((rnn_parts.INPUT_GATES, "ih"), (rnn_parts.STATE_GATES, "hh")):
                weights.put(row, part, *network.weights(layer, which, backward=backward))


def _put_ends(weights: Weights, own: int, model: RNNLM | RNNSeq2Seq) -> None:
    from unspool.engine import weight_table

    weights.put(own, weight_table.EMBED, model.embed.weight)
    words = plain_words(model)
    if words is not None:
        weights.put(own, weight_table.HEAD, words.weight, words.bias)
