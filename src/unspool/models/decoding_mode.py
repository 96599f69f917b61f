"""How a model is run while it decodes: without gradients and without dropout, whatever mode it is in.

A model that is being trained may be asked for text between two updates; it is in train mode again afterwards.
Where a model is in eval mode and one of its parts alone was put into train mode, that part stays in it:
whoever does so (for Monte Carlo dropout) means it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def decoding(model: nn.Module) -> Iterator[None]:
    """Neither gradients nor dropout inside the block; every part is in its own mode again behind it."""
    learning = [part for part in model.modules() if part.training] if model.training else []
    for part in learning:
        part.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for part in learning:
            part.training = True


def decodes(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """A method of a model that runs inside `decoding`."""
    quiet = torch.inference_mode()(method)

    @wraps(method)
    def run(model: M, /, *args: P.args, **named: P.kwargs) -> R:
        if not model.training:  # as a rule, and a step of a small model is a short time
            return quiet(model, *args, **named)
        with decoding(model):
            return method(model, *args, **named)

    return run
