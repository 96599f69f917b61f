from dataclasses import replace

import pytest

from unspool.lab.claim import FIRST_SEED, check, claim


def runs(*effects):
    return [{"effect": effect} for effect in effects]


def test_an_interval_above_the_smallest_effect_that_matters_supports(coin):
    assert coin.verdict(runs(*[0.2, 0.25, 0.3, 0.35, 0.4] * 2)) == "supported"


def test_an_interval_below_zero_contradicts(coin):
    assert coin.verdict(runs(*[-0.2, -0.25, -0.3, -0.35, -0.4] * 2)) == "contradicted"


@pytest.mark.parametrize("effects", [[0.05, 0.04] * 5, [0.5, -0.4] * 5, [0.3, 0.3, 0.3, 0.3, -0.9] * 2])
def test_other_intervals_cannot_tell(effects, coin):
    assert coin.verdict(runs(*effects)) == "cannot tell"


def test_a_claim_may_be_contradicted_by_effects_that_are_too_small(coin):
    strict = replace(coin, contradicted_below=coin.matters)
    assert strict.verdict(runs(*[0.05, 0.04] * 5)) == "contradicted"


def test_too_few_seeds_have_no_verdict(coin):
    assert coin.verdict([]) == "not run"
    assert coin.verdict(runs(*[0.3] * 9)) == "incomplete"


def test_a_check_holds_with_every_seed_or_fails(edge):
    few, many = {"heads": 10.6}, {"heads": 10.9}
    assert edge.verdict([]) == "not run"
    assert edge.verdict([few, few]) == "incomplete"
    assert edge.verdict([few, few, few]) == "holds"
    assert edge.verdict([few, many]) == "fails"
    assert edge.held([few, many]) == [[True, False]]


def test_power_is_that_of_the_t_test(coin):
    # Cohen 1988: n = 10, d = 1, one-sided level 0.025.
    assert replace(coin, assumed=(0.2, 0.1)).power == pytest.approx(0.803, abs=0.002)
    # Common units limit the degrees of freedom.
    assert replace(coin, assumed=(0.2, 0.1), crossed=5).power == pytest.approx(0.401, abs=0.002)


def test_claim_has_the_name_of_its_function(coin):
    @claim(
        "Coins fall.",
        source="A book",
        measured="Tosses.",
        draw=coin.draw,
        primary="",
        matters=0,
        assumed=(1, 1),
    )
    def falling(seed, quick, progress):
        return {"effect": 1.0}

    @check("Coins are round.", source="A book", measured="Tosses.", draw=coin.draw, criterion={})
    def round_(seed, quick, progress):
        return {}

    assert (falling.name, falling.statement, falling.seeds) == ("falling", "Coins fall.", 10)
    assert falling.measure(1, True, print) == {"effect": 1.0}
    assert (round_.name, round_.seeds) == ("round_", 3)


def test_default_seeds(coin):
    assert coin.default_seeds(quick=True) == [FIRST_SEED]
    assert coin.default_seeds(quick=False) == list(range(FIRST_SEED, FIRST_SEED + 10))
