from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.lab.claims.large_beams import CLAIM, lengths


def test_the_end_is_no_word():
    truth = ZipfMarkov(word_count=1, order=1, stop=0.6)  # a word, and then most probably the end
    found, outs = lengths(TrueModel(truth), [[truth.bos]], 2, 10)
    assert found == [1]
    assert outs[0].tokens == (4, 2)


def test_every_part_can_fail(every_part_can_fail):
    good = {"perfect model": [10.0, 6.0, 5.0], "translator": [1.0, 0.9], "right": [0.5, 0.6, 0.4]}
    changes = [{"perfect model": [10.0, 9.0, 9.5]}, {"translator": [1.0, 0.99]}, {"right": [0.5, 0.6, 0.7]}]
    every_part_can_fail(CLAIM, good, changes)
