"""What is wrong nearly everywhere, and how a call must answer it: it works, or says in words what is wrong.

Never an error of Python, numpy, scipy or torch that a user would have to read the source for.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import unspool as us
from unspool.models.encoders import ENCODERS
from unspool.tokenization.vocabulary import train_characters

TEXT = train_characters(["abcdef. "])
SIZES = {"vocab_size": TEXT.vocab_size, "width": 4, "heads": 2, "inner_width": 4}
LM = us.models.TransformerConfig(**SIZES, layers=2, kv_heads=2, head_width=2, context=12).build(TEXT).eval()
PAIRS = us.models.TransformerSeq2SeqConfig(**SIZES, encoder_layers=1, decoder_layers=1).build(TEXT).eval()
LABELS = (
    us.models.ClassifierConfig(
        vocab_size=TEXT.vocab_size, labels=("x", "y"), encoder=ENCODERS["rnn"](width=4)
    )
    .build(TEXT)
    .eval()
)

WRONG = {
    "None": None,
    "nan": math.nan,
    "inf": math.inf,
    "-1": -1,
    "0": 0,
    "0.5": 0.5,
    "2**63": 2**63,
    "10**400": 10**400,
    "True": True,
    "''": "",
    "'x'": "x",
    "lone surrogate": "\ud800",
    "bytes": b"ab",
    "[]": [],
    "[None]": [None],
    "[nan]": [math.nan],
    "[[]]": [[]],
    "[-1]": [-1],
    "['x', 1]": ["x", 1],
    "{'a': 1}": {"a": 1},
    "object": object(),
    "np.float32(0.5)": np.float32(0.5),
    "np.array([1, 2])": np.array([1, 2]),
    "torch.tensor(1)": torch.tensor(1),
    "torch.tensor([[nan]])": torch.tensor([[math.nan]]),
    "TopP": us.TopP,
    "Greedy()": us.Greedy(),
    "TopP()": us.TopP(),
    "a model": LM,
    "an encoder–decoder": PAIRS,
    "a classifier": LABELS,
    "a function": lambda *args: None,
}
"""Mistakes that people make: a missing, wrong or misplaced value, an array, a class instead of an object."""
HUGE = ("2**63", "10**400")
RAW = re.compile(
    r"object (is|has|does|cannot|of type)|objects? is not|unsupported operand|not supported between|bad operand"
    r"|must be real number|be interpreted as an integer|positional argument|keyword argument|required arg"
    r"|invalid literal|could not convert|truth value|[Bb]oolean value of|only integer|scalar arrays|out of range"
    r"|unhashable|not subscriptable|not enough values|too many values to unpack|expected (str|bytes|Tensor|int)"
    r"|argument must be|must be (str|int|Tensor|tuple)|got (an )?instance|Expected |tensor a|dimension out of|"
    r"size mismatch|PathLike object|integer division|too large to convert|descriptor|can't convert|issubclass"
)
"""How Python, numpy and torch speak."""


Call = Callable[[Any], object]


def complaint(call: Call, value: Any) -> str | None:
    """What is wrong with how a call takes this value; None where nothing is."""
    try:
        call(value)
    except (TypeError, ValueError, FileNotFoundError, FileExistsError) as error:
        said = str(error)
        if len(said.split()) < 4 or RAW.search(said):
            return f"{type(error).__name__}: {said:.200}"
    except Exception as error:
        return f"{type(error).__name__}: {error!s:.200}"
    return None


@pytest.fixture(scope="session")
def complaints() -> Callable[..., dict[str, str]]:
    """Throw every wrong value at a call of one argument; what it answers badly, by the value's name."""

    def found(call: Call, *, huge: bool = True, besides: dict[str, Any] | None = None) -> dict[str, str]:
        values = {name: value for name, value in WRONG.items() if huge or name not in HUGE}
        values |= {"a generator": (each for each in ["x"])} | (besides or {})
        said = {name: complaint(call, value) for name, value in values.items()}
        return {name: words for name, words in said.items() if words}

    return found
