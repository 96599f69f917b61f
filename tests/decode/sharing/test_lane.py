from unspool.decode.sharing.lane import Lane


def test_lanes_of_the_same_rows_are_two():
    assert Lane([1]) != Lane([1])
    assert Lane([1]).open
