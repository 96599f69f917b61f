"""Products in bfloat16 where the hardware has them; weights, sums and updates stay float32.

    autocast: y = float32( bf16(x) · bf16(W)ᵀ )

Micikevicius et al. 2018, §3 (papers.bib: micikevicius2018mixed). Differs from the paper: bfloat16 has
float32's range, so that the loss needs no scaling.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from unspool.training.settings import TrainSettings


def arithmetic(settings: TrainSettings) -> AbstractContextManager[object]:
    """The context of a forward pass."""
    if settings.precision == "float32":
        return nullcontext()
    return torch.autocast(torch.device(settings.device).type, dtype=torch.bfloat16)


def check_device(settings: TrainSettings) -> None:
    """Refuse a device that is not there, and a precision that it does not have."""
    try:
        device = torch.device(settings.device)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"train.device={settings.device!r} cannot be used here: {first}") from error
    if settings.precision == "bfloat16" and not _has_bfloat16(device):
        raise ValueError(
            f"train.precision='bfloat16': {device.type} has no bfloat16 products here, and to imitate them "
            "is slower than float32: use precision = 'float32'"
        )


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return any(getattr(torch.cpu, name)() for name in CPU_FLAGS if hasattr(torch.cpu, name))
    return device.type == "xpu"


CPU_FLAGS = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
