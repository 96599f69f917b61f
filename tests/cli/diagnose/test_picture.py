import pytest

import unspool as us


def test_a_picture_is_drawn(unspool, loaded, tmp_path):
    path = tmp_path / "ranks.svg"
    argv = ("diagnose", "picture", "tiny", "ab", "-o", path, "--decoder", "Sample(TopP(0.9))", "--top", "2")
    assert unspool(*argv) == (0, "", f"unspool: wrote {path}\n")
    assert loaded == [("tiny", "cpu")]
    assert "<svg" in path.read_text()


def test_a_decoder_that_cuts_nothing_is_refused(unspool, loaded, tmp_path):
    status, _, err = unspool(
        *("diagnose", "picture", "tiny", "ab", "-o", tmp_path / "a.svg", "--decoder", "Greedy()")
    )
    assert status == 2
    assert "only a Sample" in err
    assert loaded == []


def test_a_path_that_cannot_be_written_fails_before_the_work(unspool, monkeypatch, tmp_path):
    monkeypatch.setattr(us, "load", lambda *args, **options: pytest.fail("work was done"))
    status, _, err = unspool("diagnose", "picture", "tiny", "ab", "-o", tmp_path / "no" / "a.svg")
    assert status == 2
    assert "a.svg: No such file or directory" in err


def test_a_model_without_a_matrix_says_so(unspool, loaded, tmp_path):
    argv = ("diagnose", "picture", "tiny", "ab", "-o", tmp_path / "a.svg")
    status, _, err = unspool(*argv, "--decoder", "Sample(BasisAware(0.1))")
    assert status == 2
    assert "needs the matrix of an output layer" in err
