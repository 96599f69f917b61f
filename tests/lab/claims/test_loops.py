from string import ascii_letters

from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.lab.claims.loops import greedy_trigram, loops_by_beta, walk
from unspool.testing import TableModel
from unspool.tokenization.vocabulary import train_characters


def test_a_walk_by_hand():
    # (0, 1) → 2, (1, 2) → 0, (2, 0) → 1: back at (0, 1) after three pairs.
    following = [[0, 2, 0], [0, 0, 0], [1, 0, 0]]
    assert walk(following, (0, 1)) == (3, 3)
    assert walk(following, (0, 0)) == (1, 1)
    assert walk(following, (2, 2)) == (4, 3)  # 22, 20, 01, 12, then 20 again


def test_every_part_of_greedy_trigram_can_fail(every_part_can_fail):
    good = {
        "bound, V² + 1": 10.0,
        "pairs before one comes again, most": 9.0,
        "greedy texts that end in a circle": 1.0,
    }
    changes = [
        {"pairs before one comes again, most": 11.0},
        {"greedy texts that end in a circle": 0.9},
    ]
    every_part_can_fail(greedy_trigram, good, changes)


def test_a_language_of_one_word_always_loops():
    model = TrueModel(ZipfMarkov(word_count=1, order=1))
    assert loops_by_beta(model, [[1, 4], [1]], 12, 1) == [[1.0, 1.0]] * 7


def test_texts_of_prompts_that_are_alike_loop_independently():
    text = train_characters([ascii_letters])
    letters = text.encode(ascii_letters)

    def table(row):
        """Half of all texts go on with the first letter for ever, the others are as random as can be."""
        p = [0.0] * text.vocab_size
        if row[-1] != letters[0]:
            p = [float(token in letters[1:]) for token in range(text.vocab_size)]
        if row[-1] == letters[0] or len(row) == 1:
            p[letters[0]] = sum(p) or 1.0
        return [share / sum(p) for share in p]

    model = TableModel(table, tokenizer=text)
    assert 15 < sum(loops_by_beta(model, [[letters[1]]] * 60, 30, 1)[0]) < 45
