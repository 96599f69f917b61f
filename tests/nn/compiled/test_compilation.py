import numba

from unspool.nn.compiled.compilation import announced, fingerprint


def test_a_fingerprint_is_of_what_is_written(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "room/b.py").write_text("2")
    first = fingerprint(tmp_path)
    assert first == fingerprint(tmp_path)
    (tmp_path / "room/b.py").write_text("3")
    assert fingerprint(tmp_path) != first


def test_compiling_is_announced_in_one_line_and_only_when_it_happens(capsys):
    @numba.njit
    def new(x):
        return x + 1

    announced(lambda: new(1))
    said = capsys.readouterr().err
    assert said.startswith("unspool: compiling the decoding step for this processor")
    assert said.endswith(" s\n")
    assert said.count("\n") == 1
    announced(lambda: new(2))
    assert capsys.readouterr().err == ""
