"""Small models inside the package, trained by its own recipes: generation with nothing downloaded."""

from __future__ import annotations

from pathlib import Path

import unspool.models

BUILTIN = {
    "bible": "a language model of public-domain English prose (recipes/builtin/bible.toml)",
    "bible-weak": "its weaker sibling, for contrastive decoding (recipes/builtin/bible-weak.toml)",
    "dates": "dates as people write them → ISO 8601, an encoder–decoder (recipes/builtin/dates.toml)",
}
"""Name → what it is and the recipe that made it."""


def builtin_folder(name: str) -> Path:
    """The run folder of a built-in model; its weights are kept in half precision."""
    return Path(unspool.models.__file__).parent / "builtin" / name
