import importlib.metadata
import sys
from dataclasses import asdict
from types import SimpleNamespace

import pyarrow as pa
import pytest

from unspool.integrations.ray import corpus as module
from unspool.integrations.ray.corpus import BlockActor, pool_size
from unspool.integrations.ray.corpus_blocks import corpus_blocks


def shout():
    def work(lines, first_samples):
        if any("bad" in line for _, line in lines):
            raise ValueError(f"{lines[0][0]}: bad")
        return "".join(line.upper() for _, line in lines)

    return work


def test_an_actor_processes_a_block_and_returns_errors(tmp_path):
    (tmp_path / "a.jsonl").write_text("a\nb\nbad\n")
    blocks = list(corpus_blocks([tmp_path / "a.jsonl"], 2))
    good, bad = (BlockActor(shout, ())(pa.Table.from_pylist([asdict(block)])) for block in blocks)
    assert good == {"number": [0], "rows": [2], "content": ["AB"], "error": [""]}
    assert bad["error"] == [f"{tmp_path / 'a.jsonl'}:3: bad"]


def test_a_failed_worker_reports_at_its_first_block(tmp_path):
    def make():
        raise FileNotFoundError("there is no model 'x'")

    (tmp_path / "a.jsonl").write_text("a\n")
    (block,) = corpus_blocks([tmp_path / "a.jsonl"], 2)
    assert BlockActor(make, ())(pa.Table.from_pylist([asdict(block)]))["error"] == ["there is no model 'x'"]


def test_pool_size_leaves_one_processor_for_ray():
    def cluster(cpus):
        return SimpleNamespace(cluster_resources=lambda: {"CPU": cpus})

    assert [pool_size(cluster(n), None) for n in (1.0, 2.0, 9.0)] == [1, 1, 8]
    assert pool_size(cluster(2.0), 5) == 5


def test_missing_ray_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"needs ray: pip install 'unspool\[ray\]'"):
        module.ray_package()


def test_old_ray_names_the_needed_version(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.9.3")
    with pytest.raises(ImportError, match=r"needs ray 2\.40 or later, but 2\.9\.3 is installed"):
        module.ray_package()


def test_installed_ray_is_accepted():
    assert module.ray_package().data.Dataset
