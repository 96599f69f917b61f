import pytest

import unspool as us
from unspool.lab.claim import silent
from unspool.lab.claims.real_models import story_model_size, translator_beams
from unspool.lab.inputs import FOLDER, MissingInputError
from unspool.lab.small_models import continue_texts, loops, repetition


def test_texts_are_continued_to_the_full_length():
    texts = continue_texts(us.load("bible"), [[1, 5], [1, 6, 7]], us.Greedy, 12, 1)
    assert [len(text) for text in texts] == [12, 12]


def test_repetition_and_loops_by_hand():
    plain, looping = (1, 2, 3, 4, 5, 6, 7, 8), (9, 8, 1, 2, 1, 2, 1, 2)
    assert repetition([plain, looping]) == pytest.approx([0.0, 1 / 5])  # the second 1212 of five 4-grams
    assert loops([plain, looping]) == [0.0, 1.0]


def test_exact_search_is_proved_and_never_worse_than_a_beam():
    numbers = translator_beams.measure(1, True, silent)
    assert numbers["exact: proved to be the most probable"] == 1.0
    assert numbers["exact: F₁"] == numbers["beam 64: F₁"] == 1.0  # `dates` is right
    assert numbers["effect"] == [0.0, 0.0]


@pytest.mark.parametrize("claim", [story_model_size, translator_beams], ids=lambda it: it.name)
def test_a_claim_without_its_data_says_what_to_give(claim, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with pytest.raises(MissingInputError, match=f"it needs {claim.needs[0]} in the folder of --data"):
        claim.measure(1, False, silent)
