"""The products of one decoding step, by layout of the weights and number of rows.

    python benchmarks/layout.py --threads 1

Times all matrix products of a model of SmolLM2's shape (30 layers and the output layer), in turn, and prints
the lowest of several rounds in milliseconds.
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

from unspool.nn.weight_layout import PACK_ROWS

WIDTH, INNER, QKV, VOCABULARY, LAYERS = 576, 1536, 960, 49152, 30
SHAPES = [(QKV, WIDTH), (WIDTH, WIDTH), (2 * INNER, WIDTH), (WIDTH, INNER)] * LAYERS + [(VOCABULARY, WIDTH)]


def lowest(run: Callable[[], object], rounds: int) -> float:
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


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
    table = Table(title=f"one step's products in ms, {args.threads} thread(s)")
    for column in ("rows", "F.linear", "Wᵀ contiguous", "prepacked"):
        table.add_column(column)
    for rows in args.rows:
        inputs = {width: torch.randn(rows, width) for width in (WIDTH, INNER)}
        xs = [inputs[width] for _, width in SHAPES]
        times = (
            lowest(lambda xs=xs: [F.linear(x, w) for x, w in zip(xs, plain, strict=True)], args.rounds),
            lowest(lambda xs=xs: [x @ w for x, w in zip(xs, transposed, strict=True)], args.rounds),
            lowest(
                lambda xs=xs: [
                    torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")
                    for x, w in zip(xs, packed, strict=True)
                ],
                args.rounds,
            ),
        )
        table.add_row(str(rows), *(f"{ms:.1f}" for ms in times))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
