from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.data.known_languages.made_data import is_for_validation
from unspool.lab.claims.large_beams import CLAIM, lengths, long_pairs


def test_the_end_is_no_word():
    truth = ZipfMarkov(word_count=1, order=1, stop=0.6)  # a word, and then most probably the end
    found, outs = lengths(TrueModel(truth), [[truth.bos]], 2, 10)
    assert found == [1]
    assert outs[0].tokens == (4, 2)


def test_pairs_are_long_and_were_not_learnt_from():
    pairs = long_pairs(5)
    assert all(10 <= len(source.split()) <= 14 and is_for_validation(source) for source, _ in pairs)


def test_every_part_can_fail(every_part_can_fail):
    good = {"perfect model": [10.0, 6.0, 5.0], "translator": [1.0, 0.9], "right": [0.5, 0.6, 0.4]}
    changes = [{"perfect model": [10.0, 9.0, 9.5]}, {"translator": [1.0, 0.99]}, {"right": [0.5, 0.6, 0.7]}]
    every_part_can_fail(CLAIM, good, changes)
