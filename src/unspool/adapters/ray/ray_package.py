"""Ray itself, if it is there and new enough."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

OLDEST = (2, 40)
"""The first release whose actor pools restart what a lost node has taken with it, as the tests need it."""


def ray_package() -> Any:
    """The module `ray`, with `ray.data`; an ImportError that says what to install where it is not there."""
    try:
        found = version("ray")
    except PackageNotFoundError:
        raise ImportError("work on Ray needs its package: pip install 'unspool[ray]'") from None
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(f"ray {found} is too old, and {oldest} needed: pip install -U 'unspool[ray]'")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ImportError(
            f"ray is there without what ray.data needs ({error}): pip install 'unspool[ray]'"
        ) from error
    return ray


@contextmanager
def joined() -> Iterator[Any]:
    """Ray in a cluster: the one that this process is in, or RAY_ADDRESS names, or runs on this machine; else
    one is started here. What was joined here is left at the end."""
    ray = ray_package()
    if ray.is_initialized():
        yield ray
        return
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Ray's own code says of every pool of ray.data that what restarts its actors might be lost.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield ray
    finally:
        ray.shutdown()
