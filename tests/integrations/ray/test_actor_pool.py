from dataclasses import asdict
from types import SimpleNamespace

import pyarrow as pa

from unspool.integrations.ray.actor_pool import BlockActor, pool_size
from unspool.integrations.ray.corpus_blocks import corpus_blocks


def shout():
    def work(lines, first_samples):
        if any("bad" in line for _, line in lines):
            raise ValueError(f"{lines[0][0]}: bad")
        return "".join(line.upper() for _, line in lines)

    return work


def test_an_actor_does_one_block_and_tells_what_is_wrong_with_it(tmp_path):
    (tmp_path / "a.jsonl").write_text("a\nb\nbad\n")
    blocks = list(corpus_blocks([tmp_path / "a.jsonl"], 2))
    good, bad = (BlockActor(shout, ())(pa.Table.from_pylist([asdict(block)])) for block in blocks)
    assert good == {"number": [0], "rows": [2], "content": ["AB"], "wrong": [""]}
    assert bad["wrong"] == [f"{tmp_path / 'a.jsonl'}:3: bad"]


def test_a_worker_that_cannot_be_made_says_why_at_its_first_block(tmp_path):
    def make():
        raise FileNotFoundError("there is no model 'x'")

    (tmp_path / "a.jsonl").write_text("a\n")
    (block,) = corpus_blocks([tmp_path / "a.jsonl"], 2)
    assert BlockActor(make, ())(pa.Table.from_pylist([asdict(block)]))["wrong"] == ["there is no model 'x'"]


def test_one_processor_is_left_to_ray():
    def cluster(cpus):
        return SimpleNamespace(cluster_resources=lambda: {"CPU": cpus})

    assert [pool_size(cluster(n), None) for n in (1.0, 2.0, 9.0)] == [1, 1, 8]
    assert pool_size(cluster(2.0), 5) == 5
