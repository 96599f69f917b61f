import pytest

from unspool.integrations.ray.corpus import part_folder, read_job

ASKED = {"seed": 1, "files": (("a", 2),)}


def test_a_part_is_there_once_it_is_written_and_found_again(tmp_path):
    with part_folder(tmp_path / "out", ASKED) as folder:
        assert not folder.has(3)
        folder.write(3, "é\n")
    assert (tmp_path / "out/part-000003.jsonl").read_bytes() == "é\n".encode()
    with part_folder(tmp_path / "out", ASKED) as folder:
        assert folder.has(3)
        assert not folder.has(2)
    assert read_job(tmp_path / "out")["seed"] == 1


def test_another_job_is_refused_and_what_differs_is_named(tmp_path):
    with part_folder(tmp_path, {**ASKED, "seed": 3}):
        pass
    with part_folder(tmp_path, ASKED) as folder:  # what came to nothing stands in nobody's way
        folder.write(0, "")
    with (
        pytest.raises(ValueError, match=r"another job \(seed was 1 and is 2\)"),
        part_folder(tmp_path, {**ASKED, "seed": 2}),
    ):
        pass


def test_another_process_and_foreign_files_are_refused(tmp_path):
    with (
        part_folder(tmp_path / "out", ASKED),
        pytest.raises(BlockingIOError, match="another process writes to"),
        part_folder(tmp_path / "out", ASKED),
    ):
        pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").touch()
    with pytest.raises(ValueError, match=r"holds other files"), part_folder(tmp_path / "mine", ASKED):
        pass
    with pytest.raises(ValueError, match=r"is a file"), part_folder(tmp_path / "mine/thesis.txt", ASKED):
        pass
    (tmp_path / "mine/job.json").write_text("{")
    with (
        pytest.raises(ValueError, match=r"not what this command writes"),
        part_folder(tmp_path / "mine", ASKED),
    ):
        pass
