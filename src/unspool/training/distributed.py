"""Distributed training: one process, DDP or FSDP.

    process r of R computes batches u·A + r, u·A + r + R, … of the A batches of update u

A recipe gives the same updates on any number of processes that divides A (up to the order of additions), so
that a run may be resumed with another number of processes.

    ProcessGroup    one process
    Replicated      every process has all weights; gradients are averaged during the backward pass (DDP)
    Sharded         every process has 1/R of weights and optimizer, and gathers layers on demand (FSDP)

Li et al. 2020 (papers.bib: li2020pytorch); Zhao et al. 2023 (papers.bib: zhao2023pytorch).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from unspool.training.forward_pass import ForwardPass


class ProcessGroup:
    """The processes that train one model; this class is a single process."""

    rank, size = 0, 1

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model's forward pass with shared gradients."""
        return ForwardPass(model)

    def gradient_sync(self, forward: Any, is_last: bool) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a context for a forward and backward pass; only the last one averages gradients."""
        return nullcontext()

    def sums(self, values: Sequence[float]) -> list[float]:
        """Sum each value over all processes, in float64."""
        return list(values)

    def full_tensor(self, tensor: Tensor) -> Tensor:
        """Gather a tensor that may be sharded; all processes must call it."""
        return tensor

    def shard_like(self, full: Tensor, like: Tensor) -> Tensor:  # noqa: ARG002
        """Return this process's part of a tensor that every process has, sharded like `like`."""
        return full

    def wait(self) -> None:
        """Wait for all processes."""


class Replicated(ProcessGroup):
    """Every process has all weights."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def wrap(self, model: nn.Module) -> nn.Module:
        """Wrap in DistributedDataParallel, which copies the weights of the first process."""
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(ForwardPass(model), gradient_as_bucket_view=True)

    def gradient_sync(self, forward: Any, is_last: bool) -> AbstractContextManager[object]:
        return nullcontext() if is_last else forward.no_sync()

    def sums(self, values: Sequence[float]) -> list[float]:
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        total = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(total)
        return total.tolist()

    def wait(self) -> None:
        dist.barrier()


class Sharded(Replicated):
    """Every process has a part of the weights."""

    def __init__(self, device: str) -> None:
        super().__init__()
        from torch.distributed.device_mesh import init_device_mesh

        self._mesh = init_device_mesh(torch.device(device).type, (self.size,))

    def wrap(self, model: nn.Module) -> nn.Module:
        """Apply fully_shard to every layer of a stack, and to the rest."""
        from torch.distributed.fsdp import fully_shard

        forward = ForwardPass(model)
        for module in model.modules():
            if isinstance(module, nn.ModuleList):
                for layer in module:
                    fully_shard(layer, mesh=self._mesh)
        fully_shard(forward, mesh=self._mesh)
        return forward

    def gradient_sync(self, forward: Any, is_last: bool) -> AbstractContextManager[object]:
        forward.set_requires_gradient_sync(is_last)
        return nullcontext()

    def full_tensor(self, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def shard_like(self, full: Tensor, like: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor):
            return full
        return distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)


def is_distributed() -> bool:
    """True if torchrun started several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def join_processes(device: str, shard: bool) -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, or run alone."""
    if not is_distributed():
        if shard:
            raise ValueError(
                "train.shard needs several processes: start them with "
                "torchrun --nproc-per-node 2 -m unspool train …"
            )
        yield ProcessGroup()
        return
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "nccl" if torch.device(device).type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=30))
    try:
        yield Sharded(device) if shard else Replicated()
    finally:
        dist.destroy_process_group()
