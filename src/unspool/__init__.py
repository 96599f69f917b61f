"""unspool: train neural sequence generators, unspool text from them every way that is known, and see why
text degenerates.

    import unspool as us

    model = us.load("smollm2")
    out = us.generate(model, "Once upon a time", us.Sample(us.Temperature(0.8), us.TopP(0.9)), seed=1)
    print(out.text)

Names are imported when first used, so that `import unspool` is quick and torch is loaded only when needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unspool.decode.generate import Output, Piece, generate, stream
    from unspool.decode.picks import ArgMax, Multinomial
    from unspool.decode.search import Greedy, Sample
    from unspool.decode.spec import parse
    from unspool.decode.transforms import MinP, Temperature, TopK, TopP
    from unspool.decode.transforms.survivors import survivors
    from unspool.models.load import load
    from unspool.models.transformer_lm import TransformerConfig, TransformerLM

__version__ = "0.1.0"

_HOME: dict[str, str] = {
    "ArgMax": "unspool.decode.picks",
    "Greedy": "unspool.decode.search",
    "MinP": "unspool.decode.transforms",
    "Multinomial": "unspool.decode.picks",
    "Output": "unspool.decode.generate",
    "Piece": "unspool.decode.generate",
    "Sample": "unspool.decode.search",
    "Temperature": "unspool.decode.transforms",
    "TopK": "unspool.decode.transforms",
    "TopP": "unspool.decode.transforms",
    "TransformerConfig": "unspool.models.transformer_lm",
    "TransformerLM": "unspool.models.transformer_lm",
    "generate": "unspool.decode.generate",
    "load": "unspool.models.load",
    "parse": "unspool.decode.spec",
    "stream": "unspool.decode.generate",
    "survivors": "unspool.decode.transforms.survivors",
}

__all__ = [
    "ArgMax",
    "Greedy",
    "MinP",
    "Multinomial",
    "Output",
    "Piece",
    "Sample",
    "Temperature",
    "TopK",
    "TopP",
    "TransformerConfig",
    "TransformerLM",
    "generate",
    "load",
    "parse",
    "stream",
    "survivors",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unspool' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
