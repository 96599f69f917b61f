import json
from contextlib import contextmanager
from pathlib import Path

import pytest

from unspool.integrations.ray.corpus import Corpus, CorpusResult, run_corpus


def counting(path):
    """A worker that leaves a mark for every block that it does."""

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


@pytest.mark.filterwarnings("ignore")  # Ray's own, about its own settings and sockets
def test_every_block_is_done_once_and_what_is_there_is_left_alone(tmp_path):
    # The one test of `make test` that starts Ray.
    import ray

    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    corpus, done = corpus_in(tmp_path), tmp_path / "done"
    seen = []

    @contextmanager
    def shown(rows):
        seen.append(rows)
        yield seen.append

    assert run_corpus(corpus, counting(done), {"seed": 1}, workers=1, shown=shown) == CorpusResult(10, 5, 0)
    assert (seen[0], sum(seen[1:])) == (10, 10)
    parts = sorted((tmp_path / "out").glob("part-*"))
    whole = "".join(part.read_text() for part in parts)
    assert whole == "".join(f"{line}!\n" for line in corpus.files[0].read_text().splitlines())
    assert len(done.read_text().splitlines()) == 5

    parts[3].unlink()
    assert run_corpus(corpus, counting(done), {"seed": 1}, workers=1) == CorpusResult(10, 5, 4)
    ray.shutdown()
    assert parts[3].read_text().count("!") == 2
    assert len(done.read_text().splitlines()) == 6


def test_a_corpus_that_is_done_or_empty_starts_no_cluster(tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "init", None)
    corpus = corpus_in(tmp_path, rows=2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/job.json").write_text(json.dumps({"seed": 1, **corpus.asked()}))
    (tmp_path / "out/part-000000.jsonl").touch()
    assert run_corpus(corpus, counting(tmp_path / "done"), {"seed": 1}) == CorpusResult(2, 1, 1)

    Path(corpus.files[0]).write_text("\n")
    with pytest.raises(ValueError, match=r"there is nothing to read in this file"):
        run_corpus(Corpus(corpus.files, tmp_path / "new", ()), counting(tmp_path / "done"), {})
