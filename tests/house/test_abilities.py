"""What a model can do is asked in one way (docs/adr/0009): by an attribute that every model has."""

import ast

import pytest

ASKED = ("model", "head", "block", "encoder", "decoder")
REFUSALS = {"decode/combine/lockstep.py": 1, "models/loading/run_folder.py": 2}
"""Files that look at anything a user may give, to say what it is not."""


def sniffed(source):
    """Attributes that are looked for on a model or a part of one, which may not have them."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[of, ast.Constant(value=name), *_]):
                if ast.unparse(of).removeprefix("self._").removeprefix("self.") in ASKED:
                    found.append(name)
    return found


def test_nobody_looks_whether_a_model_happens_to_have_something(root):
    src = root / "src/unspool"
    found = {
        path.relative_to(src).as_posix(): len(names)
        for path in src.rglob("*.py")
        if (names := sniffed(path.read_text(encoding="utf-8")))
    }
    assert found == REFUSALS


@pytest.mark.parametrize(
    "source", ["getattr(model, 'head', None)", "hasattr(self.model, 'rewind')", "getattr(head, 'bias')"]
)
def test_a_sniff_is_noticed(source):
    assert sniffed(source)


@pytest.mark.parametrize("source", ["model.rewindable", "getattr(model, name)", "getattr(args, 'model')"])
def test_what_is_none_is_let_through(source):
    assert sniffed(source) == []
