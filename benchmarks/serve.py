"""Throughput, latency and memory of a server under concurrent requests, and whether answers are lost or mixed up.

    python benchmarks/serve.py --requests 200                              # short prompts
    python benchmarks/serve.py --requests 64 --lengths 64 3000             # mixed lengths: some minutes
    python benchmarks/serve.py --requests 10000 --tokens 8 --cancel 0.5 --alone 0      # memory, clients that leave
    python benchmarks/serve.py --url http://127.0.0.1:8001 --model NAME --name llama.cpp     # another server

Every request has its own prompt and seed. Some requests (`--alone`) are repeated one at a time and must give the same
text; for other servers, which do not promise that, the difference is only reported. A gap is the time between two
chunks of a stream; every request counts with its longest.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import string
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path


def body(args, number):
    rng = random.Random(number)
    low, high = args.lengths
    words = round(low * (high / low) ** rng.random())
    prompt = " ".join([str(number), *rng.choices(string.ascii_lowercase, k=words - 1)])  # a token for each
    told = {"model": args.model, "prompt": prompt, "seed": number, "max_tokens": args.tokens, "stream": True}
    return json.dumps({**told, "temperature": 0.8, "top_p": 0.95}).encode()


@dataclass
class Answer:
    """A streamed answer, with the times of its chunks in seconds since the request."""

    text: str = ""
    times: list[float] = field(default_factory=list)
    left: bool = False
    """The client left before the end."""

    @property
    def longest_gap(self):
        return max((b - a for a, b in pairwise(self.times)), default=0.0)


def ask(url, data, leave_after=math.inf):
    """Read a stream; leave after so many chunks."""
    began, answer = time.perf_counter(), Answer()
    request = urllib.request.Request(f"{url}/v1/completions", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as lines:
        for line in lines:
            if len(answer.times) >= leave_after:
                answer.left = True
                break
            if line.startswith(b"data: {") and (text := json.loads(line[6:])["choices"][0]["text"]):
                answer.times.append(time.perf_counter() - began)
                answer.text += text
    return answer


def tokens_so_far(url):
    """What our server has counted; None of another one."""
    try:
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            found = re.findall(rb"unspool_generated_tokens_total\{.*\} (\S+)", answer.read())
    except urllib.error.HTTPError:
        return None
    return sum(map(float, found)) if found else None


class MemoryWatch:
    """The resident memory of a process in MB, after every tenth of the requests."""

    def __init__(self, process, requests):
        self.process, self.step, self.done, self.found = process, max(1, requests // 10), 0, []
        self._lock = threading.Lock()

    def count(self):
        with self._lock:
            self.done += 1
            if self.process is not None and self.done % self.step == 0:
                status = Path(f"/proc/{self.process}/status").read_text()
                self.found.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1000)


def measured(url, bodies, at_once, cancel=0.0, watch=None):
    """All answers, and tokens a second."""

    def one(place):
        rng = random.Random(place)
        leave_after = rng.randrange(3) if rng.random() < cancel else math.inf
        answer = ask(url, bodies[place], leave_after)
        if watch is not None:
            watch.count()
        return answer

    before, began = tokens_so_far(url), time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(one, range(len(bodies))))
    seconds, after = time.perf_counter() - began, tokens_so_far(url)
    tokens = sum(len(it.times) for it in found) if after is None else after - (before or 0)
    return found, tokens / seconds


@contextmanager
def started(model, requests, *options):
    """The address of a server of ours and its process, until it is over."""
    command = [sys.executable, "-m", "unspool", "serve", model, "--port", "0", "--queue", str(requests)]
    command += options
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        lines = (re.search(r"running on (http://\S+)", line) for line in server.stderr)
        yield next(found[1] for found in lines if found), server.pid
    finally:
        server.terminate()
        server.communicate()


@contextmanager
def served(model, requests, *options):
    """The address of a server of ours, until it is over."""
    with started(model, requests, *options) as (url, _):
        yield url


def shares(values, unit="s"):
    """Three quantiles of some values."""
    cuts = statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else [*values] * 99
    return ", ".join(f"p{it} {cuts[it - 1]:.2f} {unit}" for it in (50, 95, 99))


def report(args, url, process=None):
    bodies = [body(args, number) for number in range(args.requests)]
    ask(url, bodies[0])
    alone, one_rate = measured(url, bodies[: args.alone], 1)
    watch = MemoryWatch(process, args.requests)
    answers, rate = measured(url, bodies, args.at_once, args.cancel, watch)
    whole = [it for it in answers if not it.left]
    lost = sum(not it.text for it in whole)
    mixed = sum(not it.left and it.text != other.text for it, other in zip(answers, alone, strict=False))
    weights = "" if args.url else f", weights {args.weights or 'by default'}"
    lengths = "{} to {}".format(*args.lengths)
    print(f"{args.name}{weights}: {args.requests} requests of {args.tokens} tokens after {lengths} words,")
    print(f"  {args.at_once} at once; {len(answers) - len(whole)} clients left before the end; lost {lost}")
    if alone:
        print(
            f"  of {len(alone)} asked for alone, too, {mixed} said something else; alone {one_rate:.1f} tokens/s"
        )
        print(f"  first token alone: {shares([it.times[0] for it in alone if it.times])}")
    print(f"  tokens a second: {rate:.1f}")
    print(f"  first token: {shares([it.times[0] for it in whole if it.times])}")
    print(f"  longest gap: {shares([it.longest_gap for it in whole])}")
    if watch.found:
        print(f"  resident MB after each tenth: {' '.join(f'{it:.0f}' for it in watch.found)}")
    return 1 if lost or (mixed and not args.url) else 0


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", help="how our server keeps them: float32, stored, int8")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--alone", type=int, default=10, help="how many are asked again one at a time")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument(
        "--lengths",
        type=int,
        nargs=2,
        default=(8, 8),
        metavar=("LOW", "HIGH"),
        help="words of a prompt, drawn uniformly on a logarithmic scale",
    )
    parser.add_argument("--cancel", type=float, default=0.0, help="share of clients that leave early")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--name", default="unspool", help="what it is called in the report")
    args = parser.parse_args(argv)
    if args.url:
        return report(args, args.url)
    options = () if args.weights is None else ("--weights", args.weights)
    with started(args.model, args.requests, *options) as (url, process):
        return report(args, url, process)


if __name__ == "__main__":
    sys.exit(main())
