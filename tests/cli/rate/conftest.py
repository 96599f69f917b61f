import json

import pytest


@pytest.fixture
def systems(tmp_path):
    """Two systems' outputs to six prompts."""
    found = []
    for name in ("ours", "theirs"):
        path = tmp_path / f"{name}.jsonl"
        records = [{"prompt": f"question {n}?", "text": f"{name} says {n}"} for n in range(6)]
        path.write_text("".join(json.dumps(it) + "\n" for it in records))
        found.append(path)
    return found


@pytest.fixture
def ratings(unspool, systems, tmp_path):
    """A set of their texts, prepared by the command."""
    assert unspool("rate", "prepare", *systems, "--out", tmp_path / "set", "--seed", 1)[0] == 0
    return tmp_path / "set"
