from random import Random

from unspool.data.known_languages import Agreement
from unspool.lab.claims.exposure_bias import LANGUAGE
from unspool.lab.claims.exposure_remedies import CLAIM, possible, remedies


def test_the_reward_is_the_truth():
    truth = Agreement(**LANGUAGE)
    said = truth.spell(truth.sample(Random(1)))
    assert possible(said, "") == 1.0
    assert possible(f"{said} {said}", "") == 0.0


def test_every_part_can_fail(every_part_can_fail):
    names = list(remedies(1))
    good = {f"{name}: possible sentences": 0.6 for name in names}
    good["maximum likelihood: possible sentences"] = 0.5
    every_part_can_fail(CLAIM, good, [{f"{name}: possible sentences": 0.5} for name in names[1:]])
