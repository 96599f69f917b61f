"""`unspool serve`: models over HTTP, as OpenAI's clients expect them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from unspool.cli.models import chosen_model, loading, speaker
from unspool.cli.parser import add_running_options, natural, positive

SUMMARY = "Answer OpenAI's API with models: completions and chats, batched, with any decoder."
EXAMPLES = """examples:
  unspool serve smollm2
  unspool serve bible smollm2 --port 8080 --slots 16
  UNSPOOL_API_KEYS=$(openssl rand -hex 24) unspool serve smollm2 --host 0.0.0.0
  curl localhost:8000/v1/completions -H "content-type: application/json" \\
      -d '{"model": "smollm2", "prompt": "Once upon a time", "decoder": "Sample(MinP(0.05))", "seed": 1}'
"""
KEYS = "UNSPOOL_API_KEYS"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool serve` takes."""
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="as in --model of generate (default: the same)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: %(default)s)")
    parser.add_argument("--port", type=natural, default=8000, help="default: %(default)s; 0 takes a free one")
    parser.add_argument(
        "--slots", type=positive, default=32, metavar="N", help="requests at once (default: %(default)s)"
    )
    parser.add_argument(
        "--queue", type=natural, default=128, metavar="N", help="requests that wait (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=positive, default=600, metavar="S", help="for a request (default: %(default)s)"
    )
    parser.add_argument(
        "--prefix-cache",
        type=natural,
        default=256,
        metavar="MB",
        help="memory for what was read, so that prompts that begin alike are not read twice (default: "
        "%(default)s; 0 keeps nothing)",
    )
    parser.add_argument(
        "--api-keys",
        type=Path,
        metavar="FILE",
        help=f"keys, one in a line, of 16 characters or more; or {KEYS} in the environment, separated by "
        "commas. Needed unless --host is this machine's own",
    )
    parser.add_argument(
        "--ratings",
        type=Path,
        metavar="FOLDER",
        help="a set of `unspool rate prepare`: the page asks for answers",
    )
    parser.add_argument(
        "--lab",
        type=Path,
        metavar="FILE",
        help="what `unspool lab report --json` has written: the page shows it",
    )
    parser.add_argument("--dtype", default="float32", metavar="NAME", help="numbers (default: %(default)s)")
    add_running_options(parser)


def run(args: argparse.Namespace) -> int:
    """Load the models and serve until SIGTERM or Ctrl-C; what has begun is finished first."""
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
    from unspool.serve.page.routes import Exhibits, StaticFiles
    from unspool.serve.requests import Limits
    from unspool.serve.scheduler import Engine
    from unspool.serve.server import Server
    from unspool.serve.worker_pool import WorkerPool

    keys = read_keys(os.environ.get(KEYS, ""), args.api_keys)
    if not keys and args.host not in LOOPBACK:
        raise ValueError(f"--host {args.host} is open to others: give --api-keys FILE, or set {KEYS}")
    ratings = None if args.ratings is None else RatingSet.load(args.ratings)
    found = () if args.lab is None else findings_of_file(args.lab, CLAIMS)
    exhibits = Exhibits(ratings, tuple(found))
    names = list(dict.fromkeys(args.models)) or [chosen_model(None)]
    kept = args.prefix_cache * 2**20 // len(names)
    engines = {name: Engine(speaker(name, loading(args)), kept) for name in names}
    server = Server(engines, WorkerPool(args.slots, args.queue), Limits(seconds=args.seconds))
    page = StaticFiles(create_app(server, keys, exhibits))
    uvicorn.run(page, host=args.host, port=args.port, log_level="info")
    return 0
