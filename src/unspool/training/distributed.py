"""One process or many: who takes which batches, and how their gradients become one.

    process r of R takes, of the A batches of update u, those numbered u·A + r, u·A + r + R, …

The same recipe gives the same updates on any number of processes that divides A (up to the order of
additions), so that a run may be interrupted on one number and go on with another.

    OneProcess      one process
    Replicated   every process has all weights; gradients are averaged while they are computed (DDP)
    Sharded    every process keeps 1/R of weights and optimizer, and gathers a layer when it is needed (FSDP)

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
        """The model's forward pass, with its gradients shared."""
        ...

    def last(self, forward: nn.Module, last: bool) -> Any:
        """A context for one forward and backward pass; gradients are exchanged in the last one only."""
        ...

    def sums(self, values: Sequence[float]) -> list[float]:
        """Every value, summed over all processes: the same in each of them."""
        ...

    def whole(self, tensor: Tensor) -> Tensor:
        """The whole of a tensor of which each process may hold a part."""
        ...

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        """This process's part of a whole tensor, laid out as `like` is."""
        ...

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all processes, which have one shape, in the order of their ranks."""
        ...

    def wait(self) -> None:
        """Until all have come here."""
        ...


class SingleProcess:
    """One process."""

    rank, size = 0, 1

    def wrap(self, model: nn.Module) -> nn.Module:
        """Nothing is shared."""
        return ForwardPass(model)

    @contextmanager
    def last(self, forward: nn.Module, last: bool) -> Iterator[None]:  # noqa: ARG002
        """Nothing is exchanged."""
        yield

    def sums(self, values: Sequence[float]) -> list[float]:
        """The values."""
        return list(values)

    def whole(self, tensor: Tensor) -> Tensor:
        """The tensor."""
        return tensor

    def part(self, whole: Tensor, like: Tensor) -> Tensor:  # noqa: ARG002
        """The tensor."""
        return whole

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """The tensor."""
        return [tensor]

    def wait(self) -> None:
        """For nobody."""


class Replicated(SingleProcess):
    """Every process has all weights."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def wrap(self, model: nn.Module) -> nn.Module:
        """DistributedDataParallel; every process begins with the weights of the first."""
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(ForwardPass(model), gradient_as_bucket_view=True)

    @contextmanager
    def last(self, forward: nn.Module, last: bool) -> Iterator[None]:
        """Gradients are averaged over the processes in the last backward pass."""
        if last:
            yield
        else:
            with forward.no_sync():  # type: ignore[operator]
                yield

    def sums(self, values: Sequence[float]) -> list[float]:
        """Summed in float64."""
        import torch.distributed as dist

        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        total = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(total)
        summed: list[float] = total.tolist()
        return summed

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all processes."""
        import torch.distributed as dist

        found = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(found, tensor.contiguous())
        return found

    def wait(self) -> None:
        """Until all have come here."""
        import torch.distributed as dist

        dist.barrier()


class Sharded(Replicated):
    """Every process keeps its share of the weights."""

    def __init__(self, device: str) -> None:
        super().__init__()
        from torch.distributed.device_mesh import init_device_mesh

        self._mesh = init_device_mesh(torch.device(device).type, (self.size,))

    def wrap(self, model: nn.Module) -> nn.Module:
        """fully_shard on every layer of a stack, and on the rest."""
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
        """Gradients are averaged and shared out in the last backward pass."""
        forward.set_requires_gradient_sync(last)  # type: ignore[operator]
        yield

    def whole(self, tensor: Tensor) -> Tensor:
        """Gathered from all processes: each of them must ask."""
        from torch.distributed.tensor import DTensor

        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        """Cut out of the whole, which every process has read for itself."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor):
            return whole
        return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)


def is_distributed() -> bool:
    """Whether torchrun has started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def join_processes(device: str, shard: bool) -> Iterator[ProcessGroup]:
    """The processes that torchrun has started; alone without it."""
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
