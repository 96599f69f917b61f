"""`unspool serve`: serve models over HTTP with OpenAI's API."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

from unspool.cli.models import load_generator, load_options, model_name
from unspool.cli.parser import MODEL_HELP, add_running_options, command, number, option

EXAMPLES = """examples:
  unspool serve smollm2
  unspool serve bible smollm2 --port 8080 --slots 16
  UNSPOOL_API_KEYS=$(openssl rand -hex 24) unspool serve smollm2 --host 0.0.0.0
  curl localhost:8000/v1/completions -H "content-type: application/json" \\
      -d '{"model": "smollm2", "prompt": "Once upon a time", "decoder": "Sample(MinP(0.05))", "seed": 1}'

The page at http://localhost:8000/ shows next-token distributions, beams and attention.
"""
KEYS_VARIABLE = "UNSPOOL_API_KEYS"


@command(
    EXAMPLES,
    option("models", nargs="*", metavar="MODEL", help=f"{MODEL_HELP}; several are allowed"),
    option("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"),
    number("--port", 8000, "port to listen on; 0 chooses a free one", minimum=0),
    number("--slots", 32, "requests that run at once"),
    number("--queue", 128, "requests that may wait; more are refused with status 429", minimum=0),
    number("--timeout", 600, "seconds per request"),
    number(
        "--prefix-cache",
        256,
        "megabytes for the KV cache of earlier prompts; 0 turns the prefix cache off",
        minimum=0,
    ),
    option(
        "--api-keys",
        type=Path,
        metavar="FILE",
        help=f"API keys of at least 16 characters, one per line; or comma-separated in {KEYS_VARIABLE}. "
        "Required unless --host is a loopback address",
    ),
    option(
        "--ratings", type=Path, metavar="FOLDER", help="let people rate this set of `unspool rate prepare`"
    ),
    option(
        "--lab", type=Path, metavar="FILE", help="show the results that `unspool lab report --json` wrote"
    ),
    partial(add_running_options, dtype=True),
    json=None,
)
def serve(args: argparse.Namespace) -> int:
    """Serve models over HTTP with OpenAI's API."""
    try:
        import fastapi  # noqa: F401
        import uvicorn
    except ModuleNotFoundError as error:
        raise ValueError(f"serve needs {error.name}: pip install unspool[serve]") from error
    from unspool.evaluate.rating import RatingSet
    from unspool.lab.claims import CLAIMS
    from unspool.lab.results import findings_of_file
    from unspool.serve.app import create_app
    from unspool.serve.guard import LOOPBACK, read_keys
    from unspool.serve.page.routes import PageContent, StaticFiles
    from unspool.serve.requests import Limits
    from unspool.serve.scheduler import Scheduler
    from unspool.serve.server import Server
    from unspool.serve.worker_pool import WorkerPool

    keys = read_keys(os.environ.get(KEYS_VARIABLE, ""), args.api_keys)
    if not keys and args.host not in LOOPBACK:
        raise ValueError(
            f"--host {args.host} is reachable by others: give --api-keys FILE, or set {KEYS_VARIABLE}"
        )
    ratings = None if args.ratings is None else RatingSet.load(args.ratings)
    findings = () if args.lab is None else findings_of_file(args.lab, CLAIMS)
    names = list(dict.fromkeys(args.models)) or [model_name(None)]
    cache_bytes = args.prefix_cache * 2**20 // len(names)
    schedulers = {name: Scheduler(load_generator(name, load_options(args)), cache_bytes) for name in names}
    server = Server(schedulers, WorkerPool(args.slots, args.queue), Limits(seconds=args.timeout))
    app = StaticFiles(create_app(server, keys, PageContent(ratings, tuple(findings))))
    uvicorn.run(app, host=args.host, port=args.port, log_level="info")
    return 0
