"""docs/walk.md passes files that exist, none of them twice within a walk, and the files that the walks are about."""

import pytest

GENERATE, TRAIN, LOAD = "From a prompt to text", "From text to a trained model", "From a file to a model"


@pytest.fixture(scope="module")
def walks(script):
    return script("docs/stranger.py").walks


def faults(root, walks):
    """What a walk passes that is not there, and what it passes twice."""
    found = []
    for heading, files in walks(root).items():
        found += [f"{heading}: {path} is missing" for path in files if not (root / path).is_file()]
        found += [f"{heading}: {path} twice" for path in dict.fromkeys(files) if files.count(path) > 1]
    return found


def test_no_walk_passes_a_file_twice_or_one_that_is_not_there(root, walks):
    assert faults(root, walks) == []


def test_the_walks_pass_what_they_are_about(root, walks):
    found = walks(root)
    assert list(found) == [GENERATE, TRAIN, LOAD]
    room = "src/unspool"
    order = [f"{room}/training/{name}.py" for name in ("run", "loop", "update", "checkpoint")]
    passed = found[TRAIN]
    assert [path for path in passed if path in order] == order
    assert passed.index(f"{room}/training/update.py") < passed.index(f"{room}/objectives/cross_entropy.py")
    for part in (
        "decode/request",
        "decode/job",
        "decode/output",
        "models/engine_choice",
        "models/compiled_state",
    ):
        assert f"{room}/{part}.py" in found[GENERATE]


def test_a_walk_that_turns_back_is_noticed(tree, walks):
    root = tree(
        {
            "src/unspool/a.py": "",
            "docs/walk.md": "## One\n[a](../src/unspool/a.py) [b](../src/unspool/b.py) [w](adr/x.md) "
            "[a](../src/unspool/a.py)\n### Aside\n[a](../src/unspool/a.py)\n## Two\n[a](../src/unspool/a.py)\n",
        }
    )
    assert faults(root, walks) == ["One: src/unspool/b.py is missing", "One: src/unspool/a.py twice"]
