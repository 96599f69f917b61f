import json
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from unspool.integrations.ray.corpus import (
    BlockActor,
    Corpus,
    CorpusResult,
    lock_folder,
    read_job,
    run_corpus,
)


@contextmanager
def unseen(rows):
    yield lambda rows: None


def run(corpus, make, settings, progress=unseen, **options):
    def zeros(lines):
        return [0] * len(lines)

    return run_corpus(corpus, make, settings, progress=progress, first_samples=zeros, **options)


def counting(path):
    """A worker that counts its blocks."""

    def make():
        def work(lines, first_samples):
            with path.open("a") as file:
                file.write(lines[0][1] + "\n")
            return "".join(f"{line}!\n" for _, line in lines)

        return work

    return make


def corpus_in(folder, rows=10, block=2):
    path = folder / "corpus.jsonl"
    path.write_text("".join(f"{json.dumps({'prompt': str(n)})}\n" for n in range(rows)))
    return Corpus([path], folder / "out", ("prompt",), block)


@pytest.fixture
def local_ray():
    import ray

    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def in_process(monkeypatch):
    """No Ray: one actor of this process works on all blocks."""

    def map_blocks(ray, blocks, make, columns, workers, gpus):
        actor = BlockActor(make, columns)
        for block in blocks:
            result = actor(pa.Table.from_pylist([asdict(block)]))
            yield tuple(result[name][0] for name in ("number", "rows", "content"))

    monkeypatch.setattr("unspool.integrations.ray.corpus.connect_ray", nullcontext)
    monkeypatch.setattr("unspool.integrations.ray.corpus.map_blocks", map_blocks)


@pytest.mark.filterwarnings("ignore")  # Ray's own, about its own settings and sockets
@pytest.mark.parametrize("workers", ["in_process", pytest.param("local_ray", marks=pytest.mark.cluster)])
def test_finished_blocks_are_skipped(tmp_path, workers, request):
    request.getfixturevalue(workers)
    corpus, done = corpus_in(tmp_path), tmp_path / "done"
    seen = []

    @contextmanager
    def shown(rows):
        seen.append(rows)
        yield seen.append

    assert run(corpus, counting(done), {"seed": 1}, workers=1, progress=shown) == CorpusResult(10, 5, 0)
    assert (seen[0], sum(seen[1:])) == (10, 10)
    parts = sorted((tmp_path / "out").glob("part-*"))
    whole = "".join(part.read_text() for part in parts)
    assert whole == "".join(f"{line}!\n" for line in corpus.files[0].read_text().splitlines())
    assert len(done.read_text().splitlines()) == 5

    parts[3].unlink()
    assert run(corpus, counting(done), {"seed": 1}, workers=1) == CorpusResult(10, 5, 4)
    assert parts[3].read_text().count("!") == 2
    assert len(done.read_text().splitlines()) == 6


def test_finished_and_empty_corpora_start_no_cluster(tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "init", None)
    corpus = corpus_in(tmp_path, rows=2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/job.json").write_text(json.dumps({"seed": 1, **corpus.settings()}))
    (tmp_path / "out/part-000000.jsonl").touch()
    assert run(corpus, counting(tmp_path / "done"), {"seed": 1}) == CorpusResult(2, 1, 1)

    Path(corpus.files[0]).write_text("\n")
    with pytest.raises(ValueError, match=r"there are no lines to read"):
        run(Corpus(corpus.files, tmp_path / "new", ()), counting(tmp_path / "done"), {})


SETTINGS = {"seed": 1, "files": (("a", 2),)}


def test_the_settings_of_a_job_are_kept(tmp_path):
    with lock_folder(tmp_path / "out", SETTINGS):
        pass
    assert read_job(tmp_path / "out")["seed"] == 1


def test_parts_of_another_job_are_rejected(tmp_path):
    with lock_folder(tmp_path, {**SETTINGS, "seed": 3}):
        pass
    with lock_folder(tmp_path, SETTINGS):  # a job without parts may be replaced
        (tmp_path / "part-000000.jsonl").touch()
    with (
        pytest.raises(ValueError, match=r"another job \(seed was 1 and is 2\)"),
        lock_folder(tmp_path, {**SETTINGS, "seed": 2}),
    ):
        pass


def test_locked_and_foreign_folders_are_rejected(tmp_path):
    with (
        lock_folder(tmp_path / "out", SETTINGS),
        pytest.raises(BlockingIOError, match="another process writes to"),
        lock_folder(tmp_path / "out", SETTINGS),
    ):
        pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").touch()
    with pytest.raises(ValueError, match=r"holds other files"), lock_folder(tmp_path / "mine", SETTINGS):
        pass
    with pytest.raises(ValueError, match=r"is a file"), lock_folder(tmp_path / "mine/thesis.txt", SETTINGS):
        pass
    (tmp_path / "mine/job.json").write_text("{")
    with (
        pytest.raises(ValueError, match=r"is not a job file"),
        lock_folder(tmp_path / "mine", SETTINGS),
    ):
        pass
