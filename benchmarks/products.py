"""Matrix products of one decoding step in torch: F.linear, this library's layout, and prepacked copies.

    python benchmarks/products.py --threads 1

Times all products of a model of SmolLM2's shape (30 layers and the output layer), in alternation, and prints the minimum
of several rounds in milliseconds. Wᵀ and oneDNN's blocks would be a second and third copy of the weights; their times show
what one layout costs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

from unspool.nn.linear import linear

WIDTH, INNER, QKV, VOCABULARY, LAYERS = 576, 1536, 960, 49152, 30
SHAPES = [(QKV, WIDTH), (WIDTH, WIDTH), (2 * INNER, WIDTH), (WIDTH, INNER)] * LAYERS + [(VOCABULARY, WIDTH)]
PACK_ROWS = 32
"""Blocks laid out for this many rows are, unlike those for one row, fast for every number of rows."""

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def blocks(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
    return y


def lowest(product: Product, xs: list[torch.Tensor], weights: list[torch.Tensor], rounds: int) -> float:
    times = []
    for _ in range(rounds + 1):  # the first one warms up
        start = time.perf_counter()
        for x, weight in zip(xs, weights, strict=True):
            product(x, weight)
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[1:])


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    plain = [torch.randn(shape) for shape in SHAPES]
    transposed = [weight.t().contiguous() for weight in plain]
    packed = [torch.ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS) for weight in plain]
    ways: dict[str, tuple[Product, list[torch.Tensor]]] = {
        "F.linear": (F.linear, plain),
        "nn.linear": (linear, plain),
        "Wᵀ contiguous": (torch.matmul, transposed),
        "prepacked": (blocks, packed),
    }
    table = Table(title=f"one step's products in ms, {args.threads} thread(s)")
    for column in ("rows", *ways):
        table.add_column(column)
    for rows in args.rows:
        inputs = {width: torch.randn(rows, width) for width in (WIDTH, INNER)}
        xs = [inputs[width] for _, width in SHAPES]
        times = (lowest(product, xs, weights, args.rounds) for product, weights in ways.values())
        table.add_row(str(rows), *(f"{ms:.1f}" for ms in times))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
