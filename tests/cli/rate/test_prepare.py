from unspool.evaluate.rating import RatingSet


def test_a_set_of_two_systems(unspool, systems, tmp_path):
    status, out, err = unspool("rate", "prepare", *systems, "--out", tmp_path / "set")
    assert (status, err) == (0, "")
    assert out == (
        f"12 items of 6 prompts and 2 systems in {tmp_path / 'set'}; "
        f"next: unspool rate answer {tmp_path / 'set'} --rater YOU\n"
    )
    assert len(RatingSet.load(tmp_path / "set").items) == 12


def test_pairs_of_some_prompts(unspool, systems, tmp_path):
    argv = ("rate", "prepare", *systems, "--out", tmp_path / "set", "--scale", "preference", "--most", 4)
    assert unspool(*argv)[1].startswith("4 items of 4 prompts")
    status, _, err = unspool(*argv)
    assert status == 2
    assert "holds a rating set already" in err


def test_plain_lines_with_prompts_beside_them(unspool, tmp_path):
    for name in ("a", "b", "p"):
        (tmp_path / f"{name}.txt").write_text(f"{name}1\n{name}2\n")
    files = (f"x={tmp_path}/a.txt", f"y={tmp_path}/b.txt")
    assert (
        unspool("rate", "prepare", *files, "--prompts", tmp_path / "p.txt", "--out", tmp_path / "s")[0] == 0
    )
    assert RatingSet.load(tmp_path / "s").key().systems == ("x", "y")
    status, _, err = unspool("rate", "prepare", *files, "--out", tmp_path / "t")
    assert status == 2
    assert "give --prompts" in err


def test_what_is_not_there_is_named(unspool, tmp_path):
    status, _, err = unspool("rate", "prepare", tmp_path / "no.jsonl", "--out", tmp_path / "s")
    assert status == 2
    assert "no.jsonl: No such file" in err
