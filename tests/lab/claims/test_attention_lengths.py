import pytest

from unspool.data.known_languages.made_data import is_for_validation
from unspool.lab.claims.attention_lengths import CLAIM, held_out


def test_rows_are_of_one_length_and_were_not_learnt_from():
    rows = held_out(4, 10)
    assert len(dict(rows)) == 10
    assert all(len(source.split()) == 4 and source == target for source, target in rows)
    assert all(is_for_validation(source) for source, _ in rows)


def test_too_many_rows_raise():
    with pytest.raises(ValueError, match="not 100 held-out rows of 2"):
        held_out(2, 100)


def test_every_part_can_fail(every_part_can_fail):
    good = {"attention": [1.0, 0.95], "fixed": [0.9, 0.1]}
    changes = [{"attention": [1.0, 0.8]}, {"fixed": [0.3, 0.2]}, {"fixed": [1.0, 0.49]}]
    every_part_can_fail(CLAIM, good, changes)
