"""Modules that are called without torch's detour while nobody listens.

torch looks for hooks, tracing and more before it calls `forward`. While one token of a small model is decoded
that is a good part of the time; so it is left out where there are neither gradients nor hooks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class DirectCall(nn.Module):
    """Put before torch's class: `class LayerNorm(DirectCall, nn.LayerNorm)`."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """`forward`, and whatever hooks there are."""
        if torch.is_grad_enabled() or self._forward_hooks or self._forward_pre_hooks:
            return super().__call__(*args, **named)
        return self.forward(*args, **named)
