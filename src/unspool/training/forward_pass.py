"""From a batch to its loss: the one place where training calls the objective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b

import torch
from torch import Tensor, nn

from unspool.data.batch import Batch
from unspool.interfaces import Clock, Objective
from unspool.training.settings import TrainSettings


class ForwardPass(nn.Module):
    """From a batch to its loss, as one forward pass: what the ways to share gradients hold on to."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, objective: Objective, batch: Batch, clock: Clock
    ) -> tuple[Tensor, float, dict[str, float]]:
        """The fields of a Loss, as a tuple: FSDP looks for tensors in those only."""
        loss = objective(self.model, batch, clock)  # type: ignore[arg-type]
        return loss.total, loss.weight, dict(loss.stats)


# Products in bfloat16 where the hardware has them; weights, sums and updates stay float32.
#
#     autocast: y = float32( bf16(x) · bf16(W)ᵀ )
#
# Micikevicius et al. 2018, §3 (papers.bib: micikevicius2018mixed). Differs from the paper: bfloat16 has
# float32's range, so that the loss needs no scaling.


def autocast(settings: TrainSettings) -> AbstractContextManager[object]:
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
        return any(getattr(torch.cpu, name)() for name in BFLOAT16_CPU_FLAGS if hasattr(torch.cpu, name))
    return device.type == "xpu"


BFLOAT16_CPU_FLAGS = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")


# Randomness that needs no saving: every batch has a seed of its own.
#
#     seed(batch) = hash(seed of the run, number of the batch)
#
# The batch's number counts over all epochs and processes, so that dropout is the same whether a run was
# interrupted or not, and whether one process works on an update or several share it.
#
#     seed(row) = hash(seed of the update, the row, how many equal rows of the update come before it)
#
# What objectives draw for a row so does not depend on how the rows of an update are split into batches.


def derive_seed(*parts: int | str) -> int:
    """A seed of 63 bits; parts that differ in anything give seeds that have nothing in common."""
    digest = blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_torch(*parts: int | str) -> None:
    """Set torch's generators, on every device, by `mixed`."""
    torch.manual_seed(derive_seed(*parts))


def row_seeds(batches: Sequence[Batch], seed: int) -> list[Tensor]:
    """For each batch (N): the seeds of its rows, where these batches are all of an update."""
    seen: Counter[bytes] = Counter()
    found = []
    for batch in batches:
        seeds = []
        for row in _row_bytes(batch):
            digest = blake2b(
                row, digest_size=8, key=seed.to_bytes(8, "big"), salt=seen[row].to_bytes(8, "big")
            )
            seeds.append(int.from_bytes(digest.digest(), "big") >> 2)
            seen[row] += 1
        found.append(torch.tensor(seeds))
    return found


def _row_bytes(batch: Batch) -> list[bytes]:
    """What tells rows apart: their tokens on all sides, without padding."""
    sides = [(batch.inputs_NT, batch.lengths_N), (batch.targets_NU, batch.lengths_N)]
    if batch.source_NS is not None and batch.source_lengths_N is not None:
        sides.append((batch.source_NS, batch.source_lengths_N))
    arrays = [(tokens.cpu().numpy(), lengths.tolist()) for tokens, lengths in sides]
    return [
        b"|".join(tokens[row, : lengths[row]].tobytes() for tokens, lengths in arrays)
        for row in range(len(batch.lengths_N))
    ]
