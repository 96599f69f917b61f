import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.lab.claims.repetition import LANGUAGE, beginnings, greedy_loops, repeating_lines


def lines(share):
    return list(repeating_lines(ZipfMarkov(**LANGUAGE, seed=3), 400, share, 3))


def test_only_the_planted_sentences_differ():
    plain, some, more = lines(0.0), lines(0.2), lines(0.5)
    changed = [[one != other for one, other in zip(plain, rows, strict=True)] for rows in (some, more)]
    # A phrase that begins near the end changes nothing.
    assert 0.1 < sum(changed[0]) / 400 < 0.2
    assert 0.3 < sum(changed[1]) / 400 < 0.5
    assert all(other for one, other in zip(*changed, strict=True) if one)
    assert all(len(one.split()) == len(other.split()) for one, other in zip(plain, more, strict=True))


def test_planted_sentences_repeat_a_phrase_to_their_end():
    changed = [other.split() for one, other in zip(lines(0.0), lines(1.0), strict=True) if one != other]
    long = [row for row in changed if len(row) > 60]
    assert long
    assert any(us.find_loop(row) is not None for row in long)
    for row in long:
        loop = us.find_loop(row)
        assert loop is None or loop.period <= 8


def test_beginnings_are_those_of_the_language():
    truth = ZipfMarkov(**LANGUAGE, seed=3)
    found = beginnings(truth, 5, 12, 1)
    assert found == beginnings(truth, 5, 12, 1) != beginnings(truth, 5, 12, 2)
    for row in found:
        assert (row[0], len(row)) == (truth.bos, 13)
        truth.state(row)  # raises for an impossible sentence


def test_a_perfect_model_of_one_word_loops():
    truth = ZipfMarkov(word_count=1, order=1, stop=0.5)
    assert greedy_loops(TrueModel(truth), [(truth.bos,)]) == [1.0]
