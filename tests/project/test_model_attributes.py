"""Optional features of a model are attributes that every model has, never found by getattr (docs/adr/0009)."""

import ast

import pytest

NAMES = ("model", "head", "block", "encoder")
REFUSALS = {"decode/lockstep.py": 1, "models/loading/run_folder.py": 2}
"""Files that inspect an object of any type in order to refuse it."""


def guessed_attributes(source):
    """Attributes that the source looks up by name on a model or one of its parts."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[of, ast.Constant(value=name), *_]):
                if ast.unparse(of).removeprefix("self._").removeprefix("self.") in NAMES:
                    found.append(name)
    return found


def test_no_source_guesses_the_attributes_of_a_model(root):
    src = root / "src/unspool"
    found = {
        path.relative_to(src).as_posix(): len(names)
        for path in src.rglob("*.py")
        if (names := guessed_attributes(path.read_text(encoding="utf-8")))
    }
    assert found == REFUSALS


@pytest.mark.parametrize(
    "source", ["getattr(model, 'head', None)", "hasattr(self.model, 'rewind')", "getattr(head, 'bias')"]
)
def test_a_guessed_attribute_is_found(source):
    assert guessed_attributes(source)


@pytest.mark.parametrize("source", ["model.rewindable", "getattr(model, name)", "getattr(args, 'model')"])
def test_ordinary_attribute_access_is_allowed(source):
    assert guessed_attributes(source) == []
