import errno
import json
import subprocess
import sys

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from unspool.training.run_folder import (
    complete_checkpoints,
    newest_checkpoint,
    remove_old_checkpoints,
    remove_unfinished,
    write_checkpoint,
)


def write(run, update, value=0.0, regular=True, model=None):
    def write_model(folder):
        save_file({"w": torch.full((4,), value)}, folder / "model.safetensors")

    about = {"regular": regular, "curves": 0, "progress": {}}
    return write_checkpoint(run, update, about, {"m": torch.full((4,), value)}, model or write_model)


def refuse(text):
    raise AssertionError(text)


def test_a_written_checkpoint_is_read_back(tmp_path):
    write(tmp_path, 5, 1.5)
    found = newest_checkpoint(tmp_path, refuse)
    assert found.update == 5
    assert found.weights()["w"].tolist() == found.training_state()["m"].tolist() == [1.5] * 4
    assert json.loads((tmp_path / "last.json").read_text()) == {"checkpoint": "00000005"}
    assert newest_checkpoint(tmp_path / "elsewhere", refuse) is None


@pytest.mark.parametrize("file", ["model.safetensors", "memory.safetensors", "checkpoint.json"])
@pytest.mark.parametrize("harm", ["cut", "changed", "removed"])
def test_a_damaged_checkpoint_is_passed_over_and_said(tmp_path, file, harm):
    write(tmp_path, 1, 1.0)
    path = write(tmp_path, 2, 2.0) / file
    content = path.read_bytes()
    if harm == "removed":
        path.unlink()
    else:
        path.write_bytes(content[:-5] if harm == "cut" else content[:-9] + b"!" + content[-8:])
    said = []
    found = newest_checkpoint(tmp_path, said.append)
    assert (found.update, found.weights()["w"][0].item()) == (1, 1.0)
    (text,) = said
    assert "00000002" in text
    assert file in text
    assert "resuming from checkpoint 00000001" in text
    assert [it.update for it in complete_checkpoints(tmp_path)] == [1]


def test_without_an_undamaged_checkpoint_it_fails(tmp_path):
    (write(tmp_path, 1) / "memory.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="no older checkpoint is intact"):
        newest_checkpoint(tmp_path, refuse)


def test_a_damaged_one_is_written_again(tmp_path):
    (write(tmp_path, 1) / "memory.safetensors").write_bytes(b"")
    write(tmp_path, 1, 3.0)
    assert newest_checkpoint(tmp_path, refuse).weights()["w"][0].item() == 3.0


def test_old_ones_go_and_the_spared_stay(tmp_path):
    for update in range(1, 7):
        write(tmp_path, update, regular=update != 6)
    remove_old_checkpoints(tmp_path, 2, {2})
    assert [it.update for it in complete_checkpoints(tmp_path)] == [
        2,
        4,
        5,
        6,
    ]  # the last is not regular, but the newest


def test_what_a_killed_process_left_is_swept(tmp_path):
    write(tmp_path, 1)
    left = tmp_path / "checkpoints" / ".00000002.unspool-unfinished-1", tmp_path / ".x.unspool-unfinished-2"
    left[0].mkdir()
    left[1].touch()
    assert newest_checkpoint(tmp_path, refuse).update == 1
    remove_unfinished(tmp_path)
    assert not left[1].exists()
    assert [it.name for it in (tmp_path / "checkpoints").iterdir()] == ["00000001"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        SafetensorError(
            'Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left" })'
        ),
    ],
    ids=["OSError", "SafetensorError", "SafetensorError of older versions"],
)
def test_a_full_disk_is_an_error_and_the_last_checkpoint_stays(tmp_path, error):
    write(tmp_path, 1, 1.0)

    def full(folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise error

    with pytest.raises(OSError, match=r"No space left .* last complete one is still there: make room"):
        write(tmp_path, 2, model=full)
    assert newest_checkpoint(tmp_path, refuse).update == 1
    assert [it.name for it in (tmp_path / "checkpoints").iterdir()] == ["00000001"]


def test_the_error_of_a_full_disk_at_the_first_checkpoint_says_that_there_is_no_earlier_one(tmp_path):
    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="there is no earlier one: make room on the disk and start again"):
        write(tmp_path, 1, model=full)


FULL = """
import resource, signal, sys, torch
from pathlib import Path
from unspool.training.run_folder import write_checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
write_checkpoint(Path(sys.argv[1]), 2, {}, {"m": torch.zeros(100_000)}, lambda folder: None)
"""


def test_the_operating_system_refuses_to_write(tmp_path):
    write(tmp_path, 1, 1.0)
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True)
    assert "File too large" in done.stderr
    assert "the last complete one is still there" in done.stderr
    assert newest_checkpoint(tmp_path, refuse).update == 1


def test_another_error_is_left_as_it_is(tmp_path):
    def fail(folder):
        raise PermissionError(errno.EACCES, "no", "x")

    with pytest.raises(PermissionError):
        write(tmp_path, 1, model=fail)


def test_nothing_is_pickled(tmp_path):
    path = write(tmp_path, 1)
    assert {it.suffix for it in path.iterdir()} == {".json", ".safetensors"}
