"""The command on a real model, as a user runs it."""

import json
import os
import pty
import subprocess
import sys

import pytest

import unspool as us
from unspool.cli.compare import DEFAULT_DECODERS

PROMPTS = ["The capital of France is", "Water boils at", "Once upon a time"]


@pytest.fixture(scope="module")
def model():
    return us.load("smollm2")


def records(out):
    return [json.loads(line) for line in out.splitlines()]


def test_the_command_prints_what_the_library_returns(unspool, model):
    search = us.Sample(us.TopP(0.9), us.Temperature(0.7))
    text = us.generate(model, PROMPTS[2], search, max_new_tokens=12, seed=4).text
    argv = ("--top-p", "0.9", "--temperature", "0.7", "--max-new-tokens", "12", "--seed", "4")
    assert unspool("generate", PROMPTS[2], *argv) == (0, text + "\n", "")


def test_a_conversation(unspool):
    asked = ("--chat", "What is the capital of France?", "--greedy", "--max-new-tokens", "16", "--json")
    (record,) = records(unspool("generate", *asked)[1])
    assert "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n" in record["prompt"]
    assert "Paris" in record["text"]
    assert record["finish_reason"] == "eos"


def test_a_file_of_prompts_and_conversations(unspool, model, tmp_path):
    path = tmp_path / "prompts.jsonl"
    talk = [{"role": "user", "content": "Say hello."}]
    lines = [*({"prompt": prompt} for prompt in PROMPTS), {"messages": talk}]
    path.write_text("\n".join(map(json.dumps, lines)))
    argv = ("--seed", "9", "--max-new-tokens", "6", "--batch-size", "3", "--json")
    found = records(unspool("generate", "--prompts", path, *argv)[1])
    prompts = [*PROMPTS, model.tokenizer.chat(talk)]
    assert [record["prompt"] for record in found] == prompts
    search = us.Sample(us.Temperature(0.8), us.TopP(0.95))  # the command's default
    alone = [us.generate(model, prompt, search, max_new_tokens=6, seed=9) for prompt in prompts]
    assert [record["text"] for record in found] == [output.text for output in alone]
    for record, output in zip(found, alone, strict=True):
        assert record["logps"] == pytest.approx(list(output.logps), abs=1e-4)


def test_a_prompt_beyond_the_context_is_refused_before_any_work(unspool, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("short\n" + "word " * 9000 + "\n")
    status, out, err = unspool("generate", "--prompts", path, "--batch-size", "1")
    assert (status, out) == (2, "")
    assert err.startswith(f"unspool: {path}:2: ")
    assert "context" in err


def test_a_terminal_is_shown_the_text():
    ours, theirs = pty.openpty()
    argv = ["generate", "Count: one, two, three,", "--greedy", "--max-new-tokens", "8"]
    process = subprocess.Popen(
        [sys.executable, "-m", "unspool", *argv], stdout=theirs, stdin=subprocess.DEVNULL
    )
    os.close(theirs)
    reads = []
    while chunk := _read(ours):
        reads.append(chunk)
    os.close(ours)
    assert process.wait() == 0
    assert b"".join(reads).replace(b"\r\n", b"\n").startswith(b" four, five")


def _read(descriptor):
    try:
        return os.read(descriptor, 1024)
    except OSError:  # Linux says so when the other side has closed
        return b""


def test_comparing_every_decoder(unspool, tmp_path):
    page = tmp_path / "report.html"
    status, out, _ = unspool("compare", PROMPTS[2], "--max-new-tokens", "2", "--seed", "1", "--html", page)
    assert status == 0
    assert all(spec in out for spec in DEFAULT_DECODERS)
    assert page.read_text(encoding="utf-8").count("<article>") == len(DEFAULT_DECODERS)
