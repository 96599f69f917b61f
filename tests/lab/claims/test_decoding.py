from itertools import product

import pytest

import unspool as us
from unspool.evaluate.rating.rater_agreement import alpha
from unspool.lab.claims.decoding import (
    BEAMS,
    LENGTH,
    VOCABULARY,
    end_symbol,
    expected_alpha,
    rating_standard,
    scripted_marks,
    search_costs,
    temperature_limits,
)
from unspool.lab.small_models import OPENINGS


def test_every_part_of_end_symbol_can_fail(every_part_can_fail):
    best = "answers more probable than each of their beginnings, with an end"
    good = {"least log p of a beginning minus that of the whole": 0.0, best: 1.0}
    changes = [{"least log p of a beginning minus that of the whole": -0.1}, {best: 0.9}]
    every_part_can_fail(end_symbol, good, changes)


def test_every_part_of_search_costs_can_fail(every_part_can_fail):
    good = {f"beam {k}: scores, most": 10 for k in BEAMS} | {"exact: right": 1.0, "exact: scores, most": 99}
    changes = [
        {"beam 4: scores, most": LENGTH * 4 * VOCABULARY + 1},
        {"exact: right": 0.9},
        {"exact: scores, most": VOCABULARY**LENGTH},
    ]
    every_part_can_fail(search_costs, good, changes)


def test_every_part_of_temperature_limits_can_fail(every_part_can_fail):
    names = (
        "samples that are greedy",
        "largest V·p − 1 at T = 10⁶",
        "pairs of tokens that change their order",
        "pairs of texts that change their order",
    )
    good = dict(zip(names, (1.0, 1e-4, 0, 0.1), strict=True))
    changes = [{name: value} for name, value in zip(names, (0.9, 0.1, 1, 0), strict=True)]
    every_part_can_fail(temperature_limits, good, changes)


def test_every_part_of_rating_standard_can_fail(every_part_can_fail):
    good = {"noise 0.0: α": 1.0, "largest difference from the expectation": 0.05}
    good |= {"mean mark of own, ordered answers": 1.8, "mean mark of others": 1.0}
    changes = [
        {"noise 0.0: α": 0.9},
        {"largest difference from the expectation": 0.2},
        {"mean mark of others": 1.9},
    ]
    every_part_can_fail(rating_standard, good, changes)


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
def test_the_expected_agreement_is_that_of_all_pairs_of_marks(noise):
    # Every outcome of a text as often as its probability says: α of so many texts is the expectation.
    marks = [0, 1, 1, 2]
    unit = 30
    chance = {same: (1 - noise) * same + noise / 3 for same in (True, False)}
    units = [
        pair
        for mark in marks
        for pair in product(range(3), repeat=2)
        for _ in range(round(unit**2 * chance[pair[0] == mark] * chance[pair[1] == mark]))
    ]
    assert expected_alpha(marks, noise) == pytest.approx(alpha(units, (0, 1, 2)), abs=1e-3)


def test_scripted_marks_follow_from_how_answers_are_made():
    marks, made = scripted_marks(us.load("bible"), OPENINGS * 3, 1)
    assert [made.count(mark) for mark in range(3)] == [12, 24, 12]
    assert set(marks) <= {0, 1, 2}
    means = [
        sum(one for one, two in zip(marks, made, strict=True) if two == mark) / made.count(mark)
        for mark in range(3)
    ]
    assert means == sorted(means)
