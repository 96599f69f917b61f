def test_the_verdict_follows_the_parts(coin):
    assert coin.verdict([]) == "not run"
    assert coin.verdict([{"heads": 0.6}, {"heads": 0.7}]) == "reproduced"
    assert coin.verdict([{"heads": 0.6}, {"heads": 0.5}]) == "mixed"
    assert coin.verdict([{"heads": 0.5}]) == "mixed"
    assert coin.verdict([{"heads": 0.1}, {"heads": 0.2}]) == "not reproduced"
    assert coin.held([{"heads": 0.5}, {"heads": 0.6}]) == [[True, True], [False, True]]


def test_a_source_names_its_section(coin):
    assert str(coin.source) == "Somebody's book, page 7"
