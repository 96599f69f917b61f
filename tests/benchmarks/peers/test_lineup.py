import shutil
import sys

import pytest
from gguf import GGMLQuantizationType as Type

from peers import lineup
from peers.gguf_writing import LlamaShape, requantise, write_random_llama
from peers.lineup import MODULES, REFERENCE, chosen, full_lineup, llama_python, peer_pythons
from peers.weight_files import converted_bytes, folder_of, source_of, stored_bytes

SHAPE = LlamaShape(layers=1, width=64, heads=4, key_value_heads=2, inner_width=64, vocab_size=320)
READ = 320 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 64
"""Weights of matrices that a step reads: the head, but not the table of embeddings."""
NORMS = 3 * 64


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Make the environment of an engine beside this one, which has none of them."""
    monkeypatch.setattr(lineup, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))

    def make(peer):
        python = tmp_path / f"env-{peer}/bin/python"
        python.parent.mkdir(parents=True)
        python.touch()
        return str(python)

    return make


@pytest.fixture
def tiny(tmp_path):
    write_random_llama(tmp_path / "tiny.gguf", SHAPE, Type.Q8_0)
    return tmp_path / "tiny.gguf"


def test_a_step_s_bytes_by_hand(tiny):
    assert stored_bytes(tiny) == READ // 32 * 34 + NORMS * 4
    assert converted_bytes(tiny, 4.0) == (READ + NORMS) * 4


@pytest.mark.usefixtures("beside")
def test_who_cannot_take_part_is_named_with_the_reason(tiny, tmp_path):
    (tmp_path / "huggingface.missing").write_text("ImportError: no transformers", encoding="utf-8")
    requantise(tiny, tmp_path / "q8_0.gguf", Type.Q8_0)
    found, absent = full_lineup(tiny, tmp_path, 256, None)
    assert [it.name for it in found] == [
        *("unspool torch", "unspool compiled", "unspool int8", "unspool stored", "unspool q8_0")
    ]
    assert absent[REFERENCE] == "ImportError: no transformers"
    assert absent["llama.cpp"] == "llama_cpp is not installed; `make peers` installs it"
    assert absent.keys() == {
        REFERENCE,
        "CTranslate2 float32",
        "CTranslate2 int8",
        "llama.cpp",
        "OpenVINO",
        "ONNX Runtime",
        "vLLM",
        *("unspool q4_0", "unspool q4_k_m", "unspool q6_k"),
    }


def test_everybody_takes_part_whose_files_are_there(tiny, tmp_path, beside):
    pythons = {peer: beside(peer) for peer in MODULES}
    (tmp_path / "openvino-float32").mkdir()
    for precision in ("float32", "int8", "int4"):
        (tmp_path / f"onnx-{precision}").mkdir()
    (tmp_path / "onnx-int4/model.onnx.data").write_bytes(b"123")
    (tmp_path / "huggingface").mkdir()
    for precision in ("float32", "int8"):
        (tmp_path / f"ctranslate2-{precision}").mkdir()
        (tmp_path / f"ctranslate2-{precision}/model.bin").write_bytes(b"12345")
    for kind in ("f32", "q8_0", "q4_0"):
        requantise(tiny, tmp_path / f"{kind}.gguf", Type[kind.upper()])
    for mixture in ("q4_k_m", "q6_k"):  # written by llama.cpp
        shutil.copy(tmp_path / "q4_0.gguf", tmp_path / f"{mixture}.gguf")
    found, absent = full_lineup(tiny, tmp_path, 256, "some/python")
    assert absent == {}
    assert {it.name for it in found if it.exact} == {
        *(REFERENCE, "CTranslate2 float32", "llama.cpp f32", "unspool torch", "unspool compiled"),
        *("OpenVINO float32", "ONNX Runtime float32", "vLLM float32"),
    }
    assert {it.python for it in found if it.name.startswith("llama.cpp")} == {"some/python"}
    assert {it.python for it in found if it.name.startswith("OpenVINO")} == {pythons["openvino"]}
    assert {it.python for it in found if it.name.startswith("ONNX")} == {pythons["onnxruntime"]}
    assert {it.python for it in found if it.name.startswith("vLLM")} == {pythons["vllm"]}
    sizes = {it.name: it.weight_bytes for it in found}
    assert sizes["CTranslate2 int8"] == 5
    assert sizes["ONNX Runtime int4"] == 3
    assert sizes["OpenVINO q8_0"] == sizes["llama.cpp q8_0"]
    assert sizes["llama.cpp q8_0"] == sizes["unspool q8_0"] == sizes["llama.cpp stored"]
    assert sizes["llama.cpp q4_0"] < sizes["llama.cpp q8_0"] < sizes["llama.cpp f32"] == sizes[REFERENCE]

    names = [it.name for it in chosen(found, ["LLAMA.cpp", "unspool int8"])]
    assert names[0] == REFERENCE
    assert names[-1] == "unspool int8"
    assert len(names) == 8
    assert chosen(found, None) == found
    with pytest.raises(SystemExit, match="no engine 'sglang'; there are Hugging Face"):
        chosen(found, ["sglang"])


def test_the_environment_of_an_engine_stands_beside_this_one(beside):
    python = beside("llama")
    assert llama_python() == python
    assert llama_python("mine") == "mine"
    assert peer_pythons() == {"llama": python}
    assert peer_pythons("mine") == {"llama": "mine"}
    assert peer_pythons() | {"vllm": beside("vllm")} == peer_pythons()


def test_a_model_is_a_gguf_file_or_a_package(tiny):
    assert source_of(str(tiny)) == tiny
    with pytest.raises(SystemExit, match=r"'gpt2' is no GGUF file and no model package \(smollm2\)"):
        source_of("gpt2")


def test_another_file_has_another_folder(tiny, tmp_path):
    requantise(tiny, tmp_path / "other" / "tiny.gguf", Type.Q4_0)
    assert folder_of(tiny) != folder_of(tmp_path / "other" / "tiny.gguf")
    assert folder_of(tiny).name.startswith("tiny-")
