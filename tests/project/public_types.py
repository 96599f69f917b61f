"""Types of the public names: checked by mypy in `make check`, never run."""

from typing import assert_type

import unspool as us
from unspool.interfaces import Model

model = us.load("smollm2", dtype="bfloat16")
assert_type(model, Model)
assert_type(us.train("recipe.toml"), Model)

assert_type(us.generate(model, "a"), us.Output)
assert_type(us.generate(model, [1, 2], us.Beam(4), max_new_tokens=3), us.Output)
assert_type(us.generate(model, [{"role": "user", "content": "a"}]), us.Output)
assert_type(us.generate(model, ["a", "b"]), list[us.Output])
assert_type(us.generate(model, "a", n=2), list[us.Output])
assert_type(us.generate(model, ["a", "b"], n=2), list[list[us.Output]])

assert_type(us.score(model, "a", "b"), us.decode.Score)
assert_type(us.score(model, "a", ["b", "c"]), list[us.decode.Score])
assert_type(us.Beam(4).width, int)
