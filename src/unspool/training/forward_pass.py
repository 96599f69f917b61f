"""The forward pass of training: objective, mixed precision, device checks and random seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b

import torch
from torch import Tensor, nn

from unspool.data.batch import Batch
from unspool.interfaces import Clock, Objective
from unspool.models.loading.weights import parse_device
from unspool.training.settings import TrainSettings


class ForwardPass(nn.Module):
    """A batch → its loss, as the forward pass that DDP and FSDP wrap."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, objective: Objective, batch: Batch, clock: Clock
    ) -> tuple[Tensor, float, dict[str, float]]:
        """Return the fields of a Loss as a tuple, because FSDP finds tensors only in tuples."""
        loss = objective(self.model, batch, clock)  # type: ignore[arg-type]
        return loss.total, loss.weight, dict(loss.stats)


def autocast(settings: TrainSettings) -> AbstractContextManager[object]:
    """Return the mixed-precision context of a forward pass: bfloat16 products, float32 weights and sums.

        y = float32( bf16(x) · bf16(W)ᵀ )

    Micikevicius et al. 2018, §3 (papers.bib: micikevicius2018mixed). Differs from the paper: bfloat16 has the
    range of float32, so that the loss is not scaled.
    """
    if settings.precision == "float32":
        return nullcontext()
    return torch.autocast(torch.device(settings.device).type, dtype=torch.bfloat16)


def check_device(settings: TrainSettings) -> None:
    """Refuse a missing device, and a precision that it does not support."""
    device = parse_device(settings.device)
    if settings.precision == "bfloat16" and not _has_bfloat16(device):
        raise ValueError(
            f"train.precision='bfloat16': {device.type} does not support bfloat16 here: use "
            "precision = 'float32'"
        )


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return any(getattr(torch.cpu, name)() for name in BFLOAT16_CPU_FLAGS if hasattr(torch.cpu, name))
    return device.type == "xpu"


BFLOAT16_CPU_FLAGS = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")


def derive_seed(*parts: int | str) -> int:
    """Hash the parts to an independent 63-bit seed.

    Every batch has the seed hash(seed of the run, number of the batch), counted over all epochs and
    processes: dropout does not depend on interruptions or on the number of processes, and no state has to be
    saved.
    """
    digest = blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_torch(*parts: int | str) -> None:
    """Seed torch's generators on every device by `derive_seed`."""
    torch.manual_seed(derive_seed(*parts))


def row_seeds(batches: Sequence[Batch], seed: int) -> list[Tensor]:
    """Return the seeds of the rows (N) of each batch of an update.

    seed(row) = hash(seed of the update, the row, number of equal rows before it in the update): random
    numbers of a row do not depend on how an update is split into batches.
    """
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
    """Return the tokens of each row on all sides, without padding."""
    sides = [(batch.inputs_NT, batch.lengths_N), (batch.targets_NU, batch.lengths_N)]
    if batch.source_NS is not None and batch.source_lengths_N is not None:
        sides.append((batch.source_NS, batch.source_lengths_N))
    arrays = [(tokens.cpu().numpy(), lengths.tolist()) for tokens, lengths in sides]
    return [
        b"|".join(tokens[row, : lengths[row]].tobytes() for tokens, lengths in arrays)
        for row in range(len(batch.lengths_N))
    ]
