from unspool.engine.transformer_step import count_phases


def test_there_are_counters_for_every_phase():
    """Begin, 14 for each layer, 2 for each reader, the last norm, the rows, the head and its normaliser; and one
    more for each of six products of a layer, of a reader's and of the head's, for rows that are made ready."""
    assert count_phases(3, 2) == 1 + (14 + 6) * 3 + (2 + 1) * 2 + 4 + 1
