"""Lost nodes and killed drivers on a cluster of two nodes: `make test-ray`."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import unspool as us

# Ray leaves sockets and processes to the collector when nodes go.
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]

OPTIONS = ("--model", "bible", "--max-new-tokens", "24", "--seed", "1")


def corpus_at(path, rows):
    words = [
        "In",
        "the",
        "beginning",
        "God",
        "said",
        "unto",
        "Moses",
        "and",
        "the",
        "children",
        "of",
        "Israel",
        "went",
        "up",
    ]
    lines = [{"id": f"row {n}", "prompt": " ".join(words[n % 7 : n % 7 + 4]), "seed": n} for n in range(rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def unspool(*argv, **options):
    return subprocess.run([sys.executable, "-m", "unspool", *map(str, argv)], check=True, **options)


def records(text):
    return [json.loads(line) for line in text.splitlines()]


def parts_of(folder):
    return sorted(folder.glob("part-*"))


@pytest.fixture
def local(tmp_path):
    """A corpus and the output of one process."""
    corpus = corpus_at(tmp_path / "corpus.jsonl", 600)
    unspool("generate", "--prompts", corpus, *OPTIONS, "--json", "--output", tmp_path / "local.jsonl")
    return corpus, (tmp_path / "local.jsonl").read_text()


@pytest.fixture
def cluster():
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    made.second = made.add_node(num_cpus=1)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def test_a_lost_node_neither_loses_nor_duplicates_rows(local, cluster, tmp_path, capsys):
    from unspool.cli import main

    corpus, outputs = local
    out = tmp_path / "out"

    def lose():
        while len(parts_of(out)) < 4:
            time.sleep(0.05)
        lost.append(len(parts_of(out)))
        cluster.remove_node(cluster.second, allow_graceful=False)

    lost = []
    thread = threading.Thread(target=lose)
    thread.start()
    command = (
        "generate",
        "--prompts",
        corpus,
        *OPTIONS,
        "--ray",
        "--workers",
        2,
        "--block-size",
        5,
        "--output",
        out,
    )
    assert main(list(map(str, command))) == 0
    thread.join()
    assert 4 <= lost[0] < 120
    assert "".join(part.read_text() for part in parts_of(out)) == outputs
    result = [it["id"] for part in parts_of(out) for it in records(part.read_text())]
    assert result == [f"row {n}" for n in range(600)]


def test_a_killed_driver_resumes(local, tmp_path):
    corpus, outputs = local
    out = tmp_path / "out"
    command = (
        "generate",
        "--prompts",
        corpus,
        *OPTIONS,
        "--ray",
        "--workers",
        1,
        "--block-size",
        5,
        "--output",
        out,
    )
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    driver = subprocess.Popen([sys.executable, "-m", "unspool", *map(str, command)], env=environment)
    while len(parts_of(out)) < 4:
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    before = {part.name: part.stat().st_mtime_ns for part in parts_of(out)}
    assert 4 <= len(before) < 120

    message = unspool(*command, env=environment, capture_output=True, text=True).stderr
    assert f"600 prompts in 120 parts, {len(before)} of them already there" in message
    after = {part.name: part.stat().st_mtime_ns for part in parts_of(out)}
    assert {name: after[name] for name in before} == before
    assert "".join(part.read_text() for part in parts_of(out)) == outputs


def test_generate_dataset_equals_one_machine(cluster):
    import ray

    prompts = [f"In the {word}" for word in ("beginning", "land", "day", "house")] * 10
    ds = ray.data.from_items([{"id": n, "prompt": it, "seed": n} for n, it in enumerate(prompts)])
    result = us.integrations.generate_dataset(
        ds, "bible", us.Sample(us.TopP(0.9)), max_new_tokens=8, workers=2, batch_size=7
    )
    rows = sorted(result.take_all(), key=lambda row: row["id"])
    model = us.load("bible")
    outputs = us.generate(model, prompts, us.Sample(us.TopP(0.9)), max_new_tokens=8, seed=list(range(40)))
    assert [row["text"] for row in rows] == [it.text for it in outputs]


def test_repeated_prompts_of_a_dataset_are_samples(cluster):
    import ray

    outputs = us.generate(us.load("bible"), "And he said", us.Sample(), max_new_tokens=8, seed=1, n=30)
    ds = ray.data.from_items([{"prompt": "And he said"}] * 30)
    for batch_size in (4, 11):
        result = us.integrations.generate_dataset(
            ds, "bible", us.Sample(), max_new_tokens=8, seed=1, batch_size=batch_size
        )
        assert sorted(row["text"] for row in result.take_all()) == sorted(it.text for it in outputs)


def test_ray_documentation_runs(cluster, capsys):
    import re
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs/ray.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(snippet, {})
    outputs = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines() if line[:1].isdigit())
    model = us.load("bible")
    texts = us.generate(
        model, ["In the beginning"] * 4, us.Sample(us.TopP(0.9)), max_new_tokens=8, seed=[0, 1, 2, 3]
    )
    assert [outputs[str(n)] for n in range(4)] == [it.text.splitlines()[0] for it in texts]
