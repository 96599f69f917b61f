def test_a_sheet_is_written_and_a_wrong_place_refused(unspool, ratings, tmp_path):
    status, out, _ = unspool("rate", "export", ratings, tmp_path / "anna.csv", "--rater", "anna")
    assert (status, out) == (0, f"12 rows in {tmp_path / 'anna.csv'}\n")
    content = (tmp_path / "anna.csv").read_text(encoding="utf-8-sig")
    assert content.startswith("rater,item,choice,prompt,text\n")
    assert "theirs says" in content
    status, _, err = unspool("rate", "export", ratings, tmp_path / "no" / "x.csv")
    assert status == 2
    assert "there is no folder" in err


def test_systems_are_named_only_when_asked_for(unspool, ratings, tmp_path):
    unspool("rate", "export", ratings, tmp_path / "a.csv", "--rater", "anna", "--systems")
    assert (
        (tmp_path / "a.csv")
        .read_text(encoding="utf-8-sig")
        .startswith("rater,item,choice,prompt,text,system")
    )
