from unspool.lab.small_models import OPENINGS, PASSAGES


def test_there_are_different_texts_that_can_be_gone_on_with():
    assert len(set(OPENINGS)) == 16
    assert all(4 <= len(text.split()) <= 12 and text == text.strip() for text in OPENINGS)
    assert len(set(PASSAGES)) == 8
    assert all(30 <= len(text.split()) <= 60 for text in PASSAGES)
