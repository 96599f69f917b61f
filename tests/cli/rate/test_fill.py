from unspool.evaluate.rating import RatingSet


def test_a_filled_sheet_is_recorded(unspool, ratings, tmp_path):
    first, second, *_ = RatingSet.load(ratings).items
    (tmp_path / "a.csv").write_text(f"item;choice\n{first.id};2\n{second.id};\n")
    assert unspool("rate", "import", ratings, tmp_path / "a.csv", "--rater", "anna")[:2] == (
        0,
        "1 new answers\n",
    )
    assert unspool("rate", "import", ratings, tmp_path / "a.csv", "--rater", "anna")[:2] == (
        0,
        "0 new answers\n",
    )
    (tmp_path / "a.csv").write_text(f"rater,item,choice\nbert,{first.id},5\n")
    status, _, err = unspool("rate", "import", ratings, tmp_path / "a.csv")
    assert status == 2
    assert "row 2: '5' is no answer" in err
    assert len(RatingSet.load(ratings).answers()) == 1
