from unspool.decode.prefix_cache import PrefixCache, RowTokens


def test_the_least_recently_used_row_goes_first_and_a_longer_one_takes_its_beginnings_place():
    texts = RowTokens()
    texts.add([[1], [2], [3], [1, 4]])
    kept = PrefixCache(most_bytes=2)
    for row in (0, 1, 2):
        kept.add(row, texts)
    kept.use(1)
    kept.use(99)  # a row that somebody holds
    assert [lane.rows for lane in kept.lanes] == [[0], [2], [1]]
    kept.add(3, texts)
    assert [lane.rows for lane in kept.lanes] == [[2], [1], [3]]
    kept.shrink(len)  # a byte for each
    assert [lane.rows for lane in kept.lanes] == [[1], [3]]
