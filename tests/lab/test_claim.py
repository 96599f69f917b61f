from unspool.lab.claim import claim


def test_the_verdict_follows_the_parts(coin):
    assert coin.verdict([]) == "not run"
    assert coin.verdict([{"heads": 0.6}, {"heads": 0.7}]) == "reproduced"
    assert coin.verdict([{"heads": 0.6}, {"heads": 0.5}]) == "mixed"
    assert coin.verdict([{"heads": 0.5}]) == "mixed"
    assert coin.verdict([{"heads": 0.1}, {"heads": 0.2}]) == "not reproduced"
    assert coin.held([{"heads": 0.5}, {"heads": 0.6}]) == [[True, True], [False, True]]


def test_claim_has_the_name_of_its_function(coin):
    @claim("Coins fall.", source="A book", measured="Tosses.", criterion={}, draw=coin.draw, limits="Few.")
    def falling(seed, quick, progress):
        return {"heads": 1.0}

    assert (falling.name, falling.statement, falling.limits) == ("falling", "Coins fall.", "Few.")
    assert falling.measure(1, True, print) == {"heads": 1.0}
