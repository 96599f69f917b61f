"""Engines that need no peer, in processes of their own."""

import pytest
from gguf import GGMLQuantizationType as Type

import unspool as us
from peers.gguf_writing import LlamaShape, write_random_llama
from peers.process import EngineFailedError, EngineProcess
from peers.work import Work


@pytest.fixture
def tiny(tmp_path):
    shape = LlamaShape(layers=1, width=64, heads=4, key_value_heads=2, inner_width=64, vocab_size=300)
    write_random_llama(tmp_path / "tiny.gguf", shape, Type.Q8_0)
    return tmp_path / "tiny.gguf"


def test_an_engine_answers_until_it_is_closed(tiny):
    settings = {"file": str(tiny), "threads": 1, "engine": "torch", "weights": "float32"}
    process = EngineProcess("peers.unspool_engine", settings, 1)
    try:
        prompts = [[1, 270, 280], [1, 271, 281]]
        works = (Work(prompts, 6), Work(prompts, 6, top_p=0.9), Work(prompts, 6, beams=4))
        answers = [process.generate(work) for work in works]
    finally:
        process.close()
    for answer in answers:
        assert [len(row) for row in answer.tokens] == [6, 6]
        assert answer.seconds > 0
        assert answer.memory["peak"] > 1e6
    assert process.imported > 0
    assert process.loaded > 0
    here = us.load(tiny)
    object.__setattr__(here.tokenizer, "eos_ids", frozenset())
    greedy = us.generate(here, prompts, us.Greedy(), max_new_tokens=6)
    assert answers[0].tokens == [list(out.tokens) for out in greedy]


def test_an_engine_that_cannot_load_says_why(tmp_path):
    settings = {"file": str(tmp_path / "none.gguf"), "threads": 1, "engine": "torch", "weights": "float32"}
    with pytest.raises(EngineFailedError, match=r"FileNotFoundError: .*none\.gguf"):
        EngineProcess("peers.unspool_engine", settings, 1)


def test_an_engine_that_is_not_installed_says_what_is_missing():
    with pytest.raises(EngineFailedError, match=r"No module named peers\.no_such_engine"):
        EngineProcess("peers.no_such_engine", {}, 1)


def test_reading_is_counted_in_bytes():
    process = EngineProcess("peers.read_bandwidth", {"threads": 1, "megabytes": 8}, 1)
    try:
        answer = process.generate(Work([], 0))
    finally:
        process.close()
    assert answer.tokens == [[4 * 8_000_000]]
    assert answer.seconds > 0
