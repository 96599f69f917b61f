import csv

import pytest

from unspool.evaluate.rating import prepare, read_sheet, write_sheet


@pytest.fixture
def ratings(tmp_path):
    return prepare(tmp_path / "r", {"x": ["=1+1", 'b "q"\nnew; line'], "y": ["c", "d"]}, ["p, or not?", "q"])


def rows(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_a_sheet_is_written_filled_in_and_read(ratings, tmp_path):
    path = tmp_path / "sheet.csv"
    assert write_sheet(ratings, path, rater="anna") == 4
    sheet = rows(path)
    assert [row["item"] for row in sheet] == [it.id for it in ratings.order("anna")]
    assert {row["choice"] for row in sheet} == {""}
    assert "system" not in sheet[0]
    for row in sheet[:3]:
        row["choice"] = "2"
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, sheet[0], delimiter=";")
        out.writeheader()
        out.writerows(sheet)
    assert read_sheet(ratings, path) == 3
    assert read_sheet(ratings, path) == 0  # a second time nothing is new
    assert {(it.rater, it.choice) for it in ratings.answers()} == {("anna", "2")}
    assert len(ratings.answers()) == 3


def test_all_answers_with_their_systems(ratings, tmp_path):
    for item in ratings.items:
        ratings.record("anna", item.id, "1")
    assert write_sheet(ratings, tmp_path / "all.csv", systems=True) == 4
    found = {row["text"]: row["system"] for row in rows(tmp_path / "all.csv")}
    assert found == {"'=1+1": "x", 'b "q"\nnew; line': "x", "c": "y", "d": "y"}


def test_answers_of_one_set_go_into_its_copy(ratings, tmp_path):
    ratings.record("anna", ratings.items[0].id, "0")
    write_sheet(ratings, tmp_path / "all.csv")
    copy = prepare(tmp_path / "s", {"x": ["=1+1", 'b "q"\nnew; line'], "y": ["c", "d"]}, ["p, or not?", "q"])
    assert read_sheet(copy, tmp_path / "all.csv") == 1
    assert [(it.rater, it.choice) for it in copy.answers()] == [("anna", "0")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "must name the columns"),
        (b"a,b\n1,2\n", "must name the columns"),
        (b"rater,item,choice\nanna,nobody,1\n", r"row 2: item 'nobody' is not among .* Nothing was recorded"),
        (b"rater,item,choice\nanna,ID,7\n", "row 2: '7' is not an answer"),
        (b"rater,item,choice\n,ID,1\n", "column rater is empty"),
        (b"rater,item,choice\nanna,ID,1\nanna,ID,9\n", "row 3"),
        (b'rater,item,choice\n"anna,ID,1\n', "not CSV"),
        (b"rater,item,choice\n\xff\xfe,1,2\n", "not UTF-8"),
    ],
)
def test_a_wrong_sheet_records_nothing(ratings, tmp_path, content, said):
    path = tmp_path / "wrong.csv"
    path.write_bytes(content.replace(b"ID", ratings.items[0].id.encode()))
    with pytest.raises(ValueError, match=said):
        read_sheet(ratings, path)
    assert ratings.answers() == []


def test_the_rater_of_a_sheet_can_be_given(ratings, tmp_path):
    path = tmp_path / "sheet.csv"
    path.write_text(f"item,choice\n{ratings.items[0].id},1\n\n")
    assert read_sheet(ratings, path, rater="bert") == 1
    assert ratings.answers()[0].rater == "bert"
