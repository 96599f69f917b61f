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
    assert list(tmp_path.iterdir()) == []


def test_by_default_what_cannot_work_is_left_out(unspool, kerbs, tmp_path):
    path = tmp_path / "ranks.svg"
    status, _, err = unspool("diagnose", "picture", kerbs, "ab", "-o", path)
    assert status == 0
    assert err.startswith("unspool: Sample(BasisAware(EtaTau(0.3))) is left out: BasisAware needs the matrix")
    assert err.endswith(f"unspool: wrote {path}\n")


def test_a_narrow_model_is_drawn_with_all_defaults(unspool, narrow, tmp_path):
    path = tmp_path / "ranks.svg"
    assert unspool("diagnose", "picture", narrow, "ab", "-o", path) == (0, "", f"unspool: wrote {path}\n")


@pytest.mark.parametrize(
    ("name", "said"), [("a.svg", "is not one of abc"), ("a.txt", "unknown figure format")]
)
def test_what_fails_leaves_no_file(unspool, loaded, tmp_path, name, said):
    status, _, err = unspool("diagnose", "picture", "tiny", "xyz", "-o", tmp_path / name)
    assert status == 2
    assert said in err
    assert list(tmp_path.iterdir()) == []
