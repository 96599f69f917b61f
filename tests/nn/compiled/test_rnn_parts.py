from unspool.engine import weight_table
from unspool.engine.rnn.rnn_parts import (
    BEGIN,
    CELLS,
    CONTEXTS,
    KEY,
    LAST,
    MEAN,
    NO_CONTEXT,
    QUERY,
    READOUT,
    SCORE,
)
from unspool.nn.rnn import CELLS as TORCHS
from unspool.nn.rnn_attention import SCORES


def test_every_cell_and_context_has_a_number():
    assert set(CELLS) == set(TORCHS)
    assert set(CONTEXTS) == {"last", "mean", *SCORES}
    assert len(set(CONTEXTS.values()) | {NO_CONTEXT}) == len(CONTEXTS) + 1


def test_contexts_that_stay_come_before_those_that_look():
    assert NO_CONTEXT < LAST < MEAN < min(CONTEXTS[kind] for kind in SCORES)


def test_no_two_parts_of_a_model_share_a_place():
    own = (weight_table.EMBED, weight_table.HEAD, QUERY, SCORE, READOUT, KEY, BEGIN)
    assert len(set(own)) == len(own)
    assert max(own) < weight_table.PARTS
