from random import Random
from types import SimpleNamespace

from unspool.lab.claims.bidirectional_context import CLAIM, PLACES, right, sentence, turned


class Reader:
    """Tags a name by the word after it, as one should."""

    def tag(self, texts):
        return [[SimpleNamespace(label=it) for it in self.tags(text.split())] for text in texts]

    def tags(self, words):
        return ["O", "PLACE" if words[2] in PLACES else "PERSON", *["O"] * (len(words) - 2)]


def test_every_word_has_a_tag_and_only_the_next_word_tells():
    dice = Random(1)
    rows = [sentence(dice) for _ in range(50)]
    assert all(len(words.split()) == len(tags.split()) for words, tags in rows)
    assert right(Reader(), rows) == 1.0
    assert turned(Reader()) == 1.0
    blind = Reader()
    blind.tags = lambda words: ["O", "PLACE", "O"]
    assert 0.3 < right(blind, rows) < 0.7
    assert turned(blind) == 0.0


def test_every_part_can_fail(every_part_can_fail):
    good = {
        **{"both directions: names tagged right": 1.0, "left to right: names tagged right": 0.52},
        **{
            "both directions: names that the next word turns": 1.0,
            "left to right: names that the next word turns": 0.0,
        },
    }
    changes = [
        {"both directions: names tagged right": 0.9},
        {"left to right: names tagged right": 0.8},
        {"both directions: names that the next word turns": 0.9},
        {"left to right: names that the next word turns": 0.1},
    ]
    every_part_can_fail(CLAIM, good, changes)
