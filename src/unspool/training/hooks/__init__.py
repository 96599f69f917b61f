"""What looks at the model after each update, and may change it: one small file each.

Settings are a frozen dataclass with `build(model) -> protocols.Hook`, and `check(train)` that refuses what
they do not go with; a recipe lists them as [[hooks]].
"""

from typing import Any

from unspool.training.hooks.kerbs_reallocate import KerbsReallocate

__all__ = ["HOOKS", "KerbsReallocate"]

HOOKS: dict[str, type[Any]] = {"kerbs_reallocate": KerbsReallocate}
