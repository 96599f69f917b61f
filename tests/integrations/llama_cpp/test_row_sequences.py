import pytest
from hypothesis import given, strategies as st

from unspool.integrations.llama_cpp import SequencePlan, plan_sequences


def test_rows_that_change_places_cost_nothing():
    assert plan_sequences((4, 7, 2), (2, 0, 1), 8) == SequencePlan((2, 4, 7), (), ())


def test_a_row_that_is_repeated_shares_its_cells_and_one_that_is_dropped_gives_its_number_back():
    assert plan_sequences((0, 1, 2), (1, 1, 2), 8) == SequencePlan((1, 0, 2), ((1, 0),), (0,))


def test_too_many_rows_are_refused_in_words():
    with pytest.raises(ValueError, match="holds 4 rows at most: lower batch_size"):
        plan_sequences((0,), (0,) * 5, 4)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_every_row_has_a_sequence_of_its_own_with_what_the_row_had(rows):
    sequences = (3, 9, 1, 0, 7, 5)
    plan = plan_sequences(sequences, rows, 16)
    content = {sequence: sequence for sequence in sequences}
    for sequence in plan.dropped:
        del content[sequence]
    for source, target in plan.copies:
        assert target not in content
        content[target] = content[source]
    assert len(set(plan.rows)) == len(rows)
    assert [content[it] for it in plan.rows] == [sequences[row] for row in rows]
