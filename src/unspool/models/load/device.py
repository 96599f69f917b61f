"""Where a model runs: a device that is there, or an error that says which are."""

from __future__ import annotations

import torch


def usable_device(name: str | torch.device) -> torch.device:
    """The device of that name, once it has shown that it can hold a number."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device {name!r} is unknown: {_choices()}") from error
    try:
        torch.empty(1, device=device)
    except Exception as error:  # torch fails in as many ways as there are kinds of devices
        raise ValueError(f"device {str(device)!r} cannot be used here: {_choices()}") from error
    return device


def _choices() -> str:
    found = ["cpu"]
    if torch.cuda.is_available():
        found += [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    if len(found) == 1:
        return "this machine, or this build of torch, has the device 'cpu' and no other"
    return f"choose from {', '.join(found)}"
