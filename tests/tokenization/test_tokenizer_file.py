"""Malicious tokenizer.json files: panics, stalls and huge allocations become one-line errors."""

import base64
import json

import pytest
import tokenizers

from unspool.tokenization import tokenizer_file
from unspool.tokenization.helper_process import HelperProcess
from unspool.tokenization.tokenizer import Tokenizer
from unspool.tokenization.tokenizer_file import library_errors, read_tokenizer

BPE = {
    **{"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None},
    **{"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False},
    **{"vocab": {"a": 0, "b": 1}, "merges": []},
}


def spec(**parts):
    names = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {"version": "1.0", "added_tokens": [], **dict.fromkeys(names), "model": BPE, **parts}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def several(kind, part, count):
    names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
    return {kind: {"type": "Sequence", names[kind]: [part] * count}}


def charsmap(data):
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}}


SPLITS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GROWING = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 64}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BAD = {
    "regex bomb": {"pre_tokenizer": split("(a+)+$")},
    "growing normalizer": several("normalizer", GROWING, 6),
    "growing decoder": several("decoder", GROWING, 6),
    "growing bytes": several("pre_tokenizer", BYTES, 40),
    "many components": several("normalizer", {"type": "NFC"}, 1000),
    "unknown kind": {"normalizer": {"type": "Cloud"}},
    "short charsmap": charsmap(b"\0"),
    "empty trie": charsmap(b"\0\0\0\0abc\0"),
    "huge trie": charsmap(b"\xff\xff\xff\x7f\xff\xff\xff\xff"),
    "growing charsmap": charsmap(b"\4\0\0\0\0\0\0\0" + b"x" * 9999),
    "trie out of range": charsmap(b"\4\0\0\0\xff\xff\xff\x7f" + b"a\0"),
    "no length": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "long strip": {"decoder": {"type": "Strip", "content": "a", "start": 10**18, "stop": 10**18}},
    "huge token id": {"model": {**BPE, "vocab": {"a": 0, "b": 4_000_000_000}}},
    "merge of nothing": {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]}},
    "prefix": {
        "model": {**BPE, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
        | {"continuing_subword_prefix": "###"}
    },
    "unknown special token": {
        "post_processor": {"type": "TemplateProcessing", "pair": [], "special_tokens": {}}
        | {"single": [{"SpecialToken": {"id": "Q", "type_id": 0}}]}
    },
    "deep": {"normalizer": None},
    "huge pieces": {
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False}
        | {"vocab": [["a" * n, -1.0] for n in range(1, 8000)]}
    },
}


@pytest.mark.parametrize("name", BAD)
def test_malicious_tokenizer_json_is_rejected_in_one_line(tmp_path, capfd, name):
    path = tmp_path / "tokenizer.json"
    text = json.dumps(spec(**BAD[name]))
    if name == "deep":
        text = '{"normalizer":' + '{"type":"Sequence","normalizers":[' * 9000
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="is not a usable tokenizer: ") as caught:
        read_tokenizer(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert capfd.readouterr().err == ""


def test_huge_padding_in_the_file_is_ignored(tmp_path):
    padding = {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None}
    truncation = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 5}
    path = tmp_path / "tokenizer.json"
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "a"}
    path.write_text(json.dumps(spec(padding=padding, truncation=truncation)), encoding="utf-8")
    assert read_tokenizer(path).encode("ab").ids == [0, 1]


def test_slow_tokenizer_json_is_rejected(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(spec(pre_tokenizer=split("[x]"))), encoding="utf-8")
    script = tmp_path / "sleeps.py"
    script.write_text(
        "import faulthandler, sys, time\nsys.stdin.readline()\n"
        "faulthandler.dump_traceback_later(0.1, exit=True, file=sys.stdout)\ntime.sleep(60)\n"
    )
    monkeypatch.setattr(tokenizer_file, "PROBE", HelperProcess(script))
    with pytest.raises(ValueError, match="encoding short test texts took over 30 s"):
        read_tokenizer(path)


def test_a_file_that_passed_is_not_probed_again(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(spec()), encoding="utf-8")
    read_tokenizer(path)
    monkeypatch.setattr(tokenizer_file, "PROBE", None)
    assert read_tokenizer(path).encode("ba").ids == [1, 0]


def test_a_file_that_passed_is_probed_again_by_another_test(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(spec()), encoding="utf-8")
    read_tokenizer(path)
    script = tmp_path / "probe.py"
    script.write_text("for _ in __import__('sys').stdin: print('{\"error\": \"no\"}', flush=True)")
    monkeypatch.setattr(tokenizer_file, "PROBE_SCRIPT", script)
    monkeypatch.setattr(tokenizer_file, "PROBE", HelperProcess(script))
    with pytest.raises(ValueError, match="is not a usable tokenizer: no"):
        read_tokenizer(path)


def test_tokenizer_panic_on_user_text_is_a_value_error():
    backend = tokenizers.Tokenizer.from_str(json.dumps(spec(pre_tokenizer=split("(a+)+$"))))
    tokenizer = Tokenizer(backend)
    with pytest.raises(ValueError, match="the text cannot be encoded: the tokenizers library failed: Onig"):
        tokenizer.encode("a" * 40 + "b")
    with pytest.raises(ValueError, match="a text cannot be encoded: the tokenizers library failed"):
        tokenizer.encode_batch(["b", "a" * 40 + "b"])


def test_library_errors_passes_other_exceptions():
    for error in (KeyboardInterrupt, TypeError, SystemExit):
        with pytest.raises(error), library_errors("x"):
            raise error


PIPELINES = {
    "byte-level BPE": {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split(SPLITS), BYTES]},
        "decoder": BYTES,
    },
    "SentencePiece": {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    },
}


@pytest.mark.parametrize("name", PIPELINES)
def test_tokenizers_of_common_models_pass(tmp_path, name):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(spec(**PIPELINES[name])), encoding="utf-8")
    assert read_tokenizer(path).encode("ab").ids == [0, 1]
