from __future__ import annotations

from collections.abc import Callable

import pytest

from unspool.data.examples import Pairs
from unspool.data.line_formats import Parallel
from unspool.data.rows import no_progress

Write = Callable[..., str]


def test_lines_belong_together(write: Write) -> None:
    one, two = write("a.de", "eins\n\ndrei\n"), write("a.en", "one\ntwo\nthree\n")
    data = Parallel(source=one, target=two, valid_source=two, valid_target=one)
    assert list(data.train_rows(no_progress)) == [("eins", "one"), ("", "two"), ("drei", "three")]
    valid = data.valid_rows(no_progress)
    assert valid is not None
    assert next(valid) == ("one", "eins")
    assert data.form(()) == Pairs()
    assert data.files() == {
        "source": (one,),
        "target": (two,),
        "valid_source": (two,),
        "valid_target": (one,),
    }


@pytest.mark.parametrize(("one", "two"), [("a\nb\nc\n", "x\n"), ("a\n", "x\ny\nz\n")])
def test_unequal_numbers_of_lines_are_said(write: Write, one: str, two: str) -> None:
    data = Parallel(source=write("a.de", one), target=write("a.en", two))
    counts = one.count("\n"), two.count("\n")
    with pytest.raises(ValueError, match=rf"a\.de has {counts[0]} lines, but .*a\.en has {counts[1]}"):
        list(data.train_rows(no_progress))


def test_one_side_to_validate_on_is_not_enough() -> None:
    with pytest.raises(ValueError, match="give both"):
        Parallel(source="a", target="b", valid_source="c")
    assert Parallel(source="a", target="b").valid_rows(no_progress) is None


def test_several_files_belong_together_in_pairs(write: Write) -> None:
    sources = write("a1", "a\n"), write("a2", "b\nc\n")
    targets = write("b1", "x\n"), write("b2", "y\nz\n")
    data = Parallel(source=sources, target=targets)
    assert list(data.train_rows(no_progress)) == [("a", "x"), ("b", "y"), ("c", "z")]
    with pytest.raises(ValueError, match="source has 2 files, but target has 1"):
        Parallel(source=sources, target=targets[0])
    # Equal in all, but not file by file.
    with pytest.raises(ValueError, match=r"a1 has 1 lines, but .*b2 has 2"):
        list(Parallel(source=sources, target=targets[::-1]).train_rows(no_progress))
