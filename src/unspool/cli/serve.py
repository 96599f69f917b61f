"""`unspool serve`: serve models over HTTP with OpenAI's API."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from unspool import config
from unspool.cli.models import load_generator, load_options, model_name
from unspool.cli.output import print_message
from unspool.cli.parser import (
    MODEL_HELP,
    add_running_options,
    command,
    flag,
    number,
    option,
    path_option,
    repeated,
)

EXAMPLES = """examples:
  unspool serve smollm2
  unspool serve bible smollm2 --port 8080 --slots 16
  unspool serve smollm2 --alias gpt-4o-mini=smollm2
  UNSPOOL_API_KEYS=$(openssl rand -hex 24) unspool serve smollm2 --host 0.0.0.0
  curl localhost:8000/v1/completions -H "content-type: application/json" \\
      -d '{"model": "smollm2", "prompt": "Once upon a time", "decoder": "Sample(MinP(0.05))", "seed": 1}'

The page at http://localhost:8000/ shows next-token distributions, beams and attention.
"""
KEYS_VARIABLE = "UNSPOOL_API_KEYS"


class ConfigFile(argparse.Action):
    """Reads options from a TOML file; options of the command line take precedence."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, _: Any = None
    ) -> None:
        """Set the options that the command line did not change."""
        try:
            settings = tomllib.loads(Path(values).read_text(encoding="utf-8"))
        except OSError as error:
            parser.error(f"{values}: {error.strerror}")
        except ValueError as error:
            parser.error(f"{values} cannot be read as TOML: {error}")
        models = settings.pop("models", [])
        words = [word for key, value in settings.items() for word in _words(key.replace("_", "-"), value)]
        given = parser.parse_args([*words, *map(str, models)])
        for name, value in vars(given).items():
            if getattr(namespace, name, None) == parser.get_default(name):
                setattr(namespace, name, value)
        namespace.models_of_file = given.models  # argparse sets positional arguments last


def _words(key: str, value: Any) -> Iterator[str]:
    """A setting of a TOML file as words of the command line."""
    if isinstance(value, dict):
        value = [f"{name}={value[name]}" for name in value]
    for each in value if isinstance(value, list) else [value]:
        if each is not False:
            yield f"--{key}" if each is True else f"--{key}={each}"


def _alias(text: str) -> tuple[str, str]:
    name, separator, model = text.partition("=")
    if not (name and separator and model):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=MODEL")
    return name, model


@command(
    EXAMPLES,
    option("models", nargs="*", metavar="MODEL", help=f"{MODEL_HELP}; several are allowed"),
    option("--config", action=ConfigFile, metavar="FILE", help="read these options from a TOML file"),
    option("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"),
    number("--port", 8000, "port to listen on; 0 chooses a free one", minimum=0),
    number("--slots", 32, "requests that run at once"),
    number("--queue", 128, "requests that may wait; more are refused with status 429", minimum=0),
    number("--per-key", None, "requests of one API key that run or wait (default: no limit)"),
    number("--timeout", 600, "seconds per request"),
    number("--drain", 30, "seconds that running requests have to finish after SIGTERM or Ctrl-C"),
    number(
        "--prefix-cache",
        256,
        "megabytes for the KV cache of earlier prompts; 0 turns the prefix cache off",
        minimum=0,
    ),
    repeated("--alias", "NAME=MODEL", "another name of a served model", type=_alias),
    flag("--strict", "refuse unknown fields instead of ignoring them"),
    option(
        "--log", choices=("text", "json"), default="text", help="format of the log (default: %(default)s)"
    ),
    path_option(
        "--api-keys",
        f"API keys of at least 16 characters, one per line; or comma-separated in {KEYS_VARIABLE}. The "
        "first is the owner's. Required unless --host is a loopback address",
    ),
    path_option("--ratings", "let people rate this set of `unspool rate prepare`", "FOLDER"),
    path_option("--lab", "show the results that `unspool lab report --json` wrote"),
    partial(add_running_options, dtype=True),
    json=None,
)
def serve(args: argparse.Namespace) -> int:
    """Serve models over HTTP with OpenAI's API."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError(f"serve needs {error.name}: pip install unspool[serve]") from error
    from unspool.evaluate.rating import RatingSet
    from unspool.lab.claims import CLAIMS
    from unspool.lab.results import findings_of_file
    from unspool.serve.guard import LOOPBACK, bind, read_keys, serve_until_stopped
    from unspool.serve.page.routes import PageContent, StaticFiles
    from unspool.serve.requests import Limits
    from unspool.serve.scheduler import Scheduler
    from unspool.serve.server import Server, create_app
    from unspool.serve.streaming import WorkerPool

    keys = read_keys(os.environ.get(KEYS_VARIABLE, ""), args.api_keys)
    if not keys and args.host not in LOOPBACK:
        raise ValueError(
            f"--host {args.host} is reachable by others: give --api-keys FILE, or set {KEYS_VARIABLE}"
        )
    given = args.models or getattr(args, "models_of_file", [])
    names = list(dict.fromkeys(given)) or [model_name(None)]
    aliases = dict(args.alias)
    for alias, name in aliases.items():
        if name not in names:
            raise ValueError(f"--alias {alias}={name}: {config.unknown(name, names, 'served model')}")
    with bind(args.host, args.port) as listener:  # before the models are loaded, which takes longer
        ratings = None if args.ratings is None else RatingSet.load(args.ratings)
        findings = () if args.lab is None else findings_of_file(args.lab, CLAIMS)
        cache_bytes = args.prefix_cache * 2**20 // len(names)
        schedulers = {
            name: Scheduler(load_generator(name, load_options(args)), cache_bytes) for name in names
        }
        for scheduler in schedulers.values():
            scheduler.warm_up()
        pool = WorkerPool(args.slots, args.queue, args.per_key)
        server = Server(schedulers, pool, Limits(seconds=args.timeout), aliases, is_strict=args.strict)
        app = create_app(server, keys, PageContent(ratings, tuple(findings)), json_log=args.log == "json")
        _log_requests()
        host, port = listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        serve_until_stopped(
            StaticFiles(app),
            listener,
            read_seconds=args.timeout,
            drain_seconds=args.drain,
            started=lambda: print_message(f"running on {url} (Ctrl-C stops)"),
        )
    return 0


def _log_requests() -> None:
    """Write one line per request to standard output."""
    log = logging.getLogger("unspool.serve")
    log.setLevel(logging.INFO)
    if not log.handlers:
        log.addHandler(logging.StreamHandler(sys.stdout))
        log.handlers[0].setFormatter(logging.Formatter("%(message)s"))
