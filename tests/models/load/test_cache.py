import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from unspool.files.cache import cache_folder
from unspool.models.load import cache
from unspool.models.load.cache import fingerprint, through_cache
from unspool.models.transformer_lm import TransformerConfig, TransformerLM

SHAPE = {
    "width": 8,
    "layers": 1,
    "heads": 2,
    "kv_heads": 1,
    "head_width": 4,
    "inner_width": 10,
    "context": 16,
}


class Converter:
    """Makes a model whose vocabulary is as large as the file, and counts how often."""

    def __init__(self):
        self.calls = 0

    def __call__(self, path):
        self.calls += 1
        torch.manual_seed(0)
        return TransformerLM(TransformerConfig(vocab_size=path.stat().st_size, **SHAPE)).eval()


@pytest.fixture
def convert():
    return Converter()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"nine bits")
    return path


def entries():
    return sorted((cache_folder() / "converted").iterdir())


def test_the_second_time_comes_from_the_cache(source, convert):
    first, second = through_cache(source, convert), through_cache(source, convert)
    assert convert.calls == 1
    tokens_NT = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(first(tokens_NT), second(tokens_NT), rtol=0, atol=0)
    assert len(entries()) == 1


def test_the_content_counts_and_not_the_name(source, convert, tmp_path):
    through_cache(source, convert)
    (tmp_path / "other.gguf").write_bytes(source.read_bytes())
    through_cache(tmp_path / "other.gguf", convert)
    assert convert.calls == 1
    source.write_bytes(b"other bits of another length")
    assert through_cache(source, convert).vocab_size == 28
    assert convert.calls == 2


@pytest.mark.parametrize("settled", [0, 2_000_000_000])
def test_a_change_that_keeps_size_and_mtime_is_noticed(source, convert, monkeypatch, settled):
    monkeypatch.setattr(cache, "_SETTLED_NS", settled)
    times = source.stat()
    through_cache(source, convert)
    source.write_bytes(b"nine BITS")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    through_cache(source, convert)
    assert convert.calls == 2


def test_a_settled_file_is_read_once_to_know_its_content(source, convert, monkeypatch):
    monkeypatch.setattr(cache, "_SETTLED_NS", -1)
    reads = []
    digest = cache.hashlib.file_digest
    monkeypatch.setattr(cache.hashlib, "file_digest", lambda *args: reads.append(1) or digest(*args))
    for _ in range(3):
        through_cache(source, convert)
    assert (len(reads), convert.calls) == (1, 1)


@pytest.mark.parametrize("note", [b"", b"../../elsewhere", b"\xff\xfe", b"0" * 63])
def test_a_broken_note_is_ignored(source, convert, monkeypatch, note):
    monkeypatch.setattr(cache, "_SETTLED_NS", -1)
    through_cache(source, convert)
    (path,) = (cache_folder() / "seen").iterdir()
    path.write_bytes(note)
    through_cache(source, convert)
    assert convert.calls == 1


def test_another_version_converts_anew(source, convert, monkeypatch):
    through_cache(source, convert)
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    through_cache(source, convert)
    assert convert.calls == 2


def damage_byte(entry):
    data = bytearray((entry / "model.safetensors").read_bytes())
    data[-5] ^= 1
    (entry / "model.safetensors").write_bytes(data)


def damage_page(entry):
    path = entry / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-64] + bytes(64))


@pytest.mark.parametrize(
    "damage",
    [
        damage_byte,
        damage_page,
        lambda entry: (entry / "model.safetensors").unlink(),
        lambda entry: (entry / "model.safetensors").write_bytes(b""),
        lambda entry: (entry / "config.json").write_text("{}"),
        lambda entry: (entry / "checks.json").unlink(),
        lambda entry: (entry / "checks.json").write_text("{}"),
        lambda entry: (entry / "checks.json").write_text("{"),
        lambda entry: (entry / "notes.txt").touch(),
    ],
)
def test_a_damaged_entry_is_converted_anew(source, convert, damage):
    first = through_cache(source, convert)
    damage(entries()[0])
    second = through_cache(source, convert)
    assert convert.calls == 2
    assert torch.equal(first.embed.weight, second.embed.weight)
    through_cache(source, convert)
    assert convert.calls == 2
    assert len(entries()) == 1


Usage = namedtuple("Usage", "total used free")


def full_disk(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100, 99, 1))


def disk_that_fills(monkeypatch):
    def fail(*args):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("unspool.models.load.folder.save_file", fail)


def no_rename(monkeypatch):
    def fail(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "rename", fail)


def unwritable(monkeypatch):
    cache_folder().write_text("a file where the folder should be")


@pytest.mark.parametrize("trouble", [full_disk, disk_that_fills, no_rename, unwritable])
def test_a_cache_that_cannot_be_written_does_not_stop_the_model(
    source, convert, monkeypatch, caplog, trouble
):
    trouble(monkeypatch)
    with caplog.at_level("INFO", logger="unspool"):
        assert through_cache(source, convert).vocab_size == 9
        assert through_cache(source, convert).vocab_size == 9
    assert convert.calls == 2
    assert "the converted model is not kept in" in caplog.text
    assert cache_folder().is_file() or entries() == []


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("damaged", [False, True])
def test_a_kill_at_any_moment_leaves_nothing_half_written(source, convert, monkeypatch, damaged):
    left = None

    def watched(change):
        def call(*args, **options):
            nonlocal left
            if left == 0:
                raise Killed
            left = None if left is None else left - 1
            return change(*args, **options)

        return call

    monkeypatch.setattr(
        "unspool.models.load.folder.save_file", watched(cache.write_files.__globals__["save_file"])
    )
    for owner, name in (
        (Path, "mkdir"),
        (Path, "rename"),
        (Path, "write_text"),
        (os, "fsync"),
        (os, "rmdir"),
    ):
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    monkeypatch.setattr(shutil, "rmtree", watched(shutil.rmtree))
    for moment in range(100):
        monkeypatch.setenv("UNSPOOL_CACHE", str(source.parent / f"cache-{moment}"))
        if damaged:
            through_cache(source, convert)
            damage_byte(entries()[0])
        left, before = moment, convert.calls
        try:
            through_cache(source, convert)
        except Killed:
            left = None
            assert through_cache(source, convert).vocab_size == 9
            through_cache(source, convert)
            assert convert.calls <= before + 2  # the killed one and one more: then it was kept
        else:
            break
        finally:
            left = None
    assert moment > 8


def test_two_processes_at_once_keep_one_whole_entry(source, home):
    code = (
        "import sys, torch\n"
        "from pathlib import Path\n"
        "from unspool.models.load.cache import through_cache\n"
        "from unspool.models.transformer_lm import TransformerConfig, TransformerLM\n"
        "def convert(path):\n"
        "    torch.manual_seed(0)\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.readline()\n"
        f"    return TransformerLM(TransformerConfig(vocab_size=9, **{SHAPE!r})).eval()\n"
        "print(float(through_cache(Path(sys.argv[1]), convert).embed.weight.detach().sum()))\n"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, str(source)]
    both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:  # both have found nothing; now both convert and keep
        process.stdin.write("go\n")
        process.stdin.flush()
    results = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert len(entries()) == 1
    convert = Converter()
    assert f"{float(through_cache(source, convert).embed.weight.detach().sum())}\n" == results[0][0]
    assert convert.calls == 0


def test_a_file_that_changes_while_it_is_read_is_an_error(source):
    def convert(path):
        path.write_bytes(b"changed")
        return Converter()(path)

    with pytest.raises(ValueError, match=r"model\.gguf was changed while it was read; load it again"):
        through_cache(source, convert)


def test_an_error_of_the_conversion_comes_through(source):
    def convert(path):
        raise ValueError("not a model")

    with pytest.raises(ValueError, match="not a model"):
        through_cache(source, convert)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 20000])
def test_a_fingerprint_changes_with_every_byte(tmp_path, size):
    path = tmp_path / "x"
    data = bytearray(i * 7 % 251 for i in range(size))
    path.write_bytes(data)
    seen = {fingerprint(path)}
    assert fingerprint(path) in seen
    for place in {0, size // 2, size - 1} if size else ():
        data[place] ^= 0x80
        path.write_bytes(data)
        assert fingerprint(path) not in seen
        seen.add(fingerprint(path))
    path.write_bytes(data + b"\0")
    assert fingerprint(path) not in seen
