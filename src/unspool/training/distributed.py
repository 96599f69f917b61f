"""Distributed training: one process, DDP or FSDP.

    process r of R computes batches u·A + r, u·A + r + R, … of the A batches of update u

A recipe gives the same updates on any number of processes that divides A (up to the order of additions), so
that a run may be resumed with another number of processes.

    SingleProcess   one process
    Replicated      every process has all weights; gradients are averaged during the backward pass (DDP)
    Sharded         every process has 1/R of weights and optimizer, and gathers layers on demand (FSDP)

Li et al. 2020 (papers.bib: li2020pytorch); Zhao et al. 2023 (papers.bib: zhao2023pytorch).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from unspool.training.forward_pass import ForwardPass


class ProcessGroup(Protocol):
    """The processes that train one model."""

    rank: int
    size: int

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model's forward pass with shared gradients."""
        ...

    def last(self, forward: nn.Module, last: bool) -> Any:
        """Return a context for a forward and backward pass; only the last one exchanges gradients."""
        ...

    def sums(self, values: Sequence[float]) -> list[float]:
        """Sum each value over all processes."""
        ...

    def whole(self, tensor: Tensor) -> Tensor:
        """Gather a tensor that may be sharded."""
        ...

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        """Return this process's part of a full tensor, sharded like `like`."""
        ...

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """Gather tensors of equal shape from all processes, in rank order."""
        ...

    def wait(self) -> None:
        """Wait for all processes."""
        ...


class SingleProcess:
    """One process."""

    rank, size = 0, 1

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the plain forward pass."""
        return ForwardPass(model)

    @contextmanager
    def last(self, forward: nn.Module, last: bool) -> Iterator[None]:  # noqa: ARG002
        """Do nothing."""
        yield

    def sums(self, values: Sequence[float]) -> list[float]:
        """Return the values."""
        return list(values)

    def whole(self, tensor: Tensor) -> Tensor:
        """Return the tensor."""
        return tensor

    def part(self, whole: Tensor, like: Tensor) -> Tensor:  # noqa: ARG002
        """Return the tensor."""
        return whole

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensor."""
        return [tensor]

    def wait(self) -> None:
        """Return at once."""


class Replicated(SingleProcess):
    """Every process has all weights."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def wrap(self, model: nn.Module) -> nn.Module:
        """Wrap in DistributedDataParallel, which copies the weights of the first process."""
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(ForwardPass(model), gradient_as_bucket_view=True)

    @contextmanager
    def last(self, forward: nn.Module, last: bool) -> Iterator[None]:
        """Average gradients over the processes in the last backward pass."""
        if last:
            yield
        else:
            with forward.no_sync():  # type: ignore[operator]
                yield

    def sums(self, values: Sequence[float]) -> list[float]:
        """Sum in float64."""
        import torch.distributed as dist

        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        total = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(total)
        summed: list[float] = total.tolist()
        return summed

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """Gather with all_gather."""
        import torch.distributed as dist

        found = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(found, tensor.contiguous())
        return found

    def wait(self) -> None:
        """Wait for all processes."""
        import torch.distributed as dist

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

    @contextmanager
    def last(self, forward: nn.Module, last: bool) -> Iterator[None]:
        """Average and shard gradients in the last backward pass."""
        forward.set_requires_gradient_sync(last)  # type: ignore[operator]
        yield

    def whole(self, tensor: Tensor) -> Tensor:
        """Gather from all processes, which must all call it."""
        from torch.distributed.tensor import DTensor

        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        """Shard a tensor that every process has."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor):
            return whole
        return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)


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
        yield SingleProcess()
        return
    import torch.distributed as dist

    if torch.device(device).type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "nccl" if torch.device(device).type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=30))
    try:
        yield Sharded(device) if shard else Replicated()
    finally:
        dist.destroy_process_group()
