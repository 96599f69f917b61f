"""An engine's end of the pipe: it loads, says so, and answers one request a line until the pipe is closed.

→ argv[1], JSON           the settings of the engine
← {"imported": true}      its libraries are there
← {"loaded": seconds, "version": …, "memory": …}    or   {"error": …}
→ {"prompts": …, "new": …, "beams": …, "top_p": …}
← {"seconds": …, "tokens": …, "memory": …}          or   {"error": …}
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from peers.work import Work


class Engine(Protocol):
    """What can be loaded with settings and generate."""

    version: str

    def generate(self, work: Work) -> list[list[int]]: ...


def memory() -> dict[str, int]:
    """Bytes of this process: resident now, of these its own (not of a mapped file), and at the highest."""
    status = Path("/proc/self/status")
    if not status.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"peak": peak * (1 if sys.platform == "darwin" else 1024)}
    # Not ru_maxrss, which begins with what the parent had when it forked.
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())

    def size(key: str) -> int:
        return int(lines[key].split()[0]) * 1024

    return {"resident": size("VmRSS"), "own": size("RssAnon"), "peak": size("VmHWM")}


def converse(load: Callable[..., Engine]) -> None:
    """Load the engine with the settings of the command line and answer until there is no more to answer."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer

    def say(**answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    say(imported=True)
    start = time.perf_counter()
    try:
        engine = load(**json.loads(sys.argv[1]))
    except Exception as error:  # the other end says it in words and leaves this engine out
        say(error=f"{type(error).__name__}: {error}")
        return
    loaded = time.perf_counter() - start
    say(loaded=loaded, version=engine.version, memory=memory())
    for line in sys.stdin:
        work = Work(**json.loads(line))
        start = time.perf_counter()
        try:
            tokens = engine.generate(work)
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")
            continue
        say(seconds=time.perf_counter() - start, tokens=tokens, memory=memory())
