from hypothesis import given, strategies as st

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.biases import due


def test_a_sequence_is_due_when_all_but_its_last_token_was_just_written():
    sequences = [(7,), (1, 2), (3, 1, 4), (3, 3)]
    history = [Hypothesis(0, 0, (3,), (1,)), Hypothesis(1, 0, ())]
    assert set(due(sequences, history)) == {(0, (7,)), (0, (1, 2)), (0, (3, 1, 4)), (1, (7,))}


tokens = st.lists(st.integers(0, 2), max_size=5).map(tuple)


@given(st.sets(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple)), tokens, tokens)
def test_due_is_its_definition(sequences, prompt, written):
    said = prompt + written
    wanted = {s for s in sequences if len(s) == 1 or said[-(len(s) - 1) :] == s[:-1]}
    assert {s for _, s in due(sequences, [Hypothesis(0, 0, prompt, written)])} == wanted
