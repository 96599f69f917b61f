from unspool.data.languages import ZipfMarkov
from unspool.data.languages.true_model import TrueModel
from unspool.lab.claims.loop_rate import CLAIM, rates, rises


def test_rising_allows_for_chance():
    assert rises([0.1, 0.08, 0.5, 1.0])
    assert not rises([0.1, 0.05, 0.5])


def test_a_language_of_one_word_always_loops():
    model = TrueModel(ZipfMarkov(word_count=1, order=1))
    assert rates(model, [[1, 4], [1]], 12, 1) == [1.0] * 7


def test_every_part_can_fail(every_part_can_fail):
    good = {"trigram": [0.0, 0.1, 1.0], "Transformer": [0.0, 0.2, 0.6]}
    changes = [
        {"trigram": [0.0, 0.5, 0.1, 1.0]},
        {"trigram": [0.0, 0.9]},
        {"Transformer": [0.0, 0.5, 0.1, 1.0]},
        {"Transformer": [0.0, 0.4]},
    ]
    every_part_can_fail(CLAIM, good, changes)
