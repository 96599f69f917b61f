from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.lab.claims.contrastive_decoding import CLAIM, completed, prefixes


def test_a_perfect_model_completes_every_sentence():
    truth = ZipfMarkov(word_count=20, order=1, branching=2, stop=0.4)  # greedy search ends soon
    starts = prefixes(truth, 10, 1)
    assert all(start[0] == truth.bos and 2 <= len(start) <= 4 for start in starts)
    share, different = completed(TrueModel(truth), truth, starts)
    assert share == 1.0
    assert 1 <= different <= 10


def test_every_part_can_fail(every_part_can_fail):
    good = {
        **{"contrast, greedy: repetition": 0.2, "strong, greedy: repetition": 0.5},
        **{"contrast, greedy: possible sentences": 0.9, "strong, greedy: possible sentences": 0.9},
    }
    changes = [{"contrast, greedy: repetition": 0.4}, {"contrast, greedy: possible sentences": 0.8}]
    every_part_can_fail(CLAIM, good, changes)
