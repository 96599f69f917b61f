from unspool.engine.rnn.rnn_engine import step
from unspool.engine.rnn.rnn_parts import LSTM, NO_CONTEXT, RNNShape
from unspool.engine.rnn.rnn_step import phases


def test_there_are_counters_for_every_phase():
    """A pass of 3 nets over 7 tokens, what an encoder tells, a step of 3 layers, and the head."""
    shape = RNNShape(4, 4, 3, 1, LSTM, 9, NO_CONTEXT, 0, 0)
    assert phases(shape, 7) == (1 + 3 * (1 + 2 * 7) + 4) + (2 + 3 * 3 + 3) + 2


def test_a_step_is_kept_under_its_version():
    """What numba keeps on disk is found by the function's constants, of which the version is one."""
    assert [cell.cell_contents for cell in step.function.py_func.__closure__] != []
