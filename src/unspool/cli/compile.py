"""`unspool compile`: compile the kernels ahead of their first use and keep them on disk."""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from unspool.cli.output import print_json
from unspool.cli.parser import command
from unspool.engine import compiler_obstacle
from unspool.engine.processors import cpu_quota

EXAMPLES = """examples:
  unspool compile

Compiles the Transformer step, the matrix products of every weight format and the sampler for this
processor and keeps them on disk, using all cores: a quarter of a minute on two. Without this
command they are compiled when first used. Run it when you set up a machine or build an image.
"""
VOCAB_SIZE = 5000
"""Enough for the compiled sampler to be used."""


def compile_transformer() -> None:
    """Compile the Transformer step, the KV cache's block copies, best tokens and the ranking of beams."""
    from unspool import Beam, Greedy, generate
    from unspool.models.transformer_lm import TransformerConfig

    model = TransformerConfig(vocab_size=VOCAB_SIZE, layers=1, width=16, heads=2, inner_width=16).build()
    for decoder in (Greedy(), Beam(2)):
        generate(model, [[1, 2, 3]] * 2, decoder, max_new_tokens=2)


def compile_sampler() -> None:
    from unspool import Sample, TopP, generate
    from unspool.models.rnn_models import RNNConfig

    model = RNNConfig(vocab_size=VOCAB_SIZE, width=16, layers=1).build()
    generate(model, [[1, 2, 3]] * 2, Sample(TopP(0.9)), max_new_tokens=2)


def compile_products(part: int, parts: int) -> None:
    """Compile the matrix products of every `parts`-th weight format."""
    from unspool.engine.weight_formats import FORMATS
    from unspool.engine.weight_table import product_address
    from unspool.lazy import gc_paused

    with gc_paused():
        for kind in FORMATS[part::parts]:
            product_address(kind)


TASKS = (
    compile_transformer,
    partial(compile_products, 0, 2),
    partial(compile_products, 1, 2),
    compile_sampler,
)
"""Independent of each other."""


def available_cores() -> int:
    """The number of cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, cpu_quota())


@command(EXAMPLES, json="one JSON object with the seconds it took")
def compile_kernels(args: argparse.Namespace) -> int:
    """Compile the kernels ahead of their first use."""
    obstacle = compiler_obstacle()
    if obstacle is not None:
        raise ValueError(f"cannot compile: {obstacle}")
    began = time.perf_counter()
    processes = min(available_cores(), len(TASKS))
    if processes == 1:
        for task in TASKS:
            task()
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            for compiled in [pool.submit(task) for task in TASKS]:
                compiled.result()
    if args.json:
        print_json({"processes": processes, "seconds": time.perf_counter() - began})
    return 0
