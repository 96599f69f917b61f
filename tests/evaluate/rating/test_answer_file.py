import os
import random
import signal
import subprocess
import sys
import time

import pytest

from unspool.evaluate.rating.answers import Answer, append, read

ONE, TWO = Answer("anna", "i1", "2", "t"), Answer("bert", "i2", "0", "t")


def test_appended_answers_are_read(tmp_path):
    path = tmp_path / "answers.jsonl"
    assert read(path) == []
    append(path, [ONE])
    append(path, [TWO, ONE])
    assert read(path) == [ONE, TWO, ONE]


def test_a_truncated_file_loses_at_most_the_last_answer(tmp_path):
    path = tmp_path / "answers.jsonl"
    append(path, [ONE])
    first = path.stat().st_size
    append(path, [Answer("ü", "i2", "0", "t")])
    content = path.read_bytes()
    for cut in range(first, len(content)):
        path.write_bytes(content[:cut])
        whole = 1 + (cut == len(content) - 1)  # only the line's end is missing
        assert len(read(path)) == whole
        append(path, [TWO])
        assert len(read(path)) == whole + 1
        assert path.read_bytes().count(b"\n") == whole + 1


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"{" * 100_000, b"x" * 200_000, b"\xff\xfe"])
def test_a_partial_last_line_is_skipped_and_removed(tmp_path, tail):
    path = tmp_path / "answers.jsonl"
    append(path, [ONE])
    path.write_bytes(path.read_bytes() + tail)
    assert read(path) == [ONE]
    append(path, [TWO])
    assert read(path) == [ONE, TWO]


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"[1]\n", b'{"rater": "anna"}\n', b'{"rater": 3, "item": 1}\n']
)
def test_a_damaged_line_is_skipped_with_a_warning_that_names_it(tmp_path, line):
    path = tmp_path / "answers.jsonl"
    append(path, [ONE])
    path.write_bytes(path.read_bytes() + line)
    append(path, [TWO])
    with pytest.warns(UserWarning, match=r"answers\.jsonl:2: not an answer"):
        assert read(path) == [ONE, TWO]


WRITER = """
import sys
from pathlib import Path
from unspool.evaluate.rating.answers import Answer, append
for n in range(100_000):
    append(Path(sys.argv[1]), [Answer(sys.argv[2], f"i{n}", "x" * 200, "t")])
    print(n, flush=True)
"""


def test_writers_killed_at_random_instants_lose_nothing_that_was_acknowledged(tmp_path):
    path, dice = tmp_path / "answers.jsonl", random.Random(0)
    for life in range(6):
        names = [f"{life}-{who}" for who in range(2)]
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, path, name], stdout=subprocess.PIPE, bufsize=0)
            for name in names
        ]
        for writer in writers:
            writer.stdout.readline()  # it has begun; unbuffered, so that no later line is taken along
        time.sleep(dice.uniform(0, 0.1))
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
        said = [len(writer.communicate()[0].split()) for writer in writers]
        found = read(path)
        for name, acknowledged in zip(names, said, strict=True):
            kept = [it.item for it in found if it.rater == name]
            assert kept == [f"i{n}" for n in range(len(kept))]
            assert acknowledged + 1 <= len(kept) <= acknowledged + 2  # one line was read; one may be unsaid
    append(path, [ONE])
    assert read(path)[-1] == ONE


def test_a_lock_that_is_not_released_raises(tmp_path, monkeypatch):
    from filelock import FileLock

    from unspool.evaluate.rating import answers

    monkeypatch.setattr(answers, "LOCK_TIMEOUT_S", 0.1)
    with (
        FileLock(tmp_path / ".answers.jsonl.lock"),
        pytest.raises(BlockingIOError, match="locked by another process"),
    ):
        append(tmp_path / "answers.jsonl", [ONE])
