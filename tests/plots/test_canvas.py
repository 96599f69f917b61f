import sys

import pytest

from unspool.plots.canvas import canvas, check_type, figure_path, label


def test_the_same_figure_gives_the_same_file(tmp_path):
    for name in ("a.svg", "b.svg"):
        with canvas(tmp_path / name, 2, 2) as figure:
            figure.subplots().plot([0, 1], [1, 0])
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("name", ["a.png", "a.pdf", "A.SVG"])
def test_each_suffix_can_be_written(tmp_path, name):
    with canvas(tmp_path / name, 1, 1) as figure:
        figure.subplots()
    assert (tmp_path / name).stat().st_size > 100


def test_an_unknown_suffix_raises(tmp_path):
    with pytest.raises(ValueError, match=r"\.svg, \.png, \.pdf"), canvas(tmp_path / "a.txt", 1, 1):
        pass


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"unspool\[figures\]"), canvas(tmp_path / "a.svg", 1, 1):
        pass


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" the", "␣the"),
        ("\n\n", "⏎⏎"),
        ("a\tb", "a⇥b"),
        ("é", "é"),
        ("“", "“"),
        ("⟨start⟩→…", "⟨start⟩→…"),
        ("中", "□"),
        ("\x1b", "□"),
        ("", ""),
    ],
)
def test_labels_show_whitespace_and_replace_missing_characters(token, shown):
    assert label(token) == shown


def test_the_font_has_the_characters_of_labels():
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    has = FT2Font(font_manager.findfont("DejaVu Sans")).get_charmap()
    assert {it for it in "⟨⟩→…“”␣⏎⇥□" if ord(it) not in has} == set()


def test_another_type_raises():
    check_type(1.5, "float")
    check_type(True, "int")
    with pytest.raises(TypeError, match="cannot draw 'x': expected a float"):
        check_type("x", "float")


@pytest.mark.parametrize("path", [None, 3, b"p.svg", ["p.svg"]])
def test_a_path_of_another_type_raises(path):
    with pytest.raises(TypeError, match="is not a path"):
        figure_path(path)
