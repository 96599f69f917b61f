from unspool.training.run_folder import Curves, read_curves


def test_points_are_kept(tmp_path):
    curves = Curves(tmp_path / "curves.jsonl")
    curves.add({"update": 1, "loss": 2.5})
    length = curves.flush()
    curves.add({"update": 2, "loss": 2.0})
    assert [it["update"] for it in read_curves(tmp_path)] == [1, 2]
    again = Curves(tmp_path / "curves.jsonl", length)  # as the checkpoint knew it
    again.add({"update": 2, "loss": 2.25})
    assert [it["loss"] for it in read_curves(tmp_path)] == [2.5, 2.25]


def test_a_new_run_begins_an_empty_file(tmp_path):
    (tmp_path / "curves.jsonl").write_text("old\n")
    Curves(tmp_path / "curves.jsonl")
    assert read_curves(tmp_path) == []


def test_an_unfinished_line_is_left_out(tmp_path):
    (tmp_path / "curves.jsonl").write_text('{"update": 1}\n{"upd')
    assert read_curves(tmp_path) == [{"update": 1}]


def test_a_file_that_has_lost_its_end_is_not_filled_up(tmp_path):
    path = tmp_path / "curves.jsonl"
    path.write_text('{"update": 1}\n')
    Curves(path, 10_000).add({"update": 2})
    assert [it["update"] for it in read_curves(tmp_path)] == [1, 2]


def test_no_file_is_no_points(tmp_path):
    assert read_curves(tmp_path) == []
