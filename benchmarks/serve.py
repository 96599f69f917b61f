"""Throughput of a server under concurrent requests, and whether answers are lost or mixed up.

    python benchmarks/serve.py --model smollm2 --requests 200 --at-once 32
    python benchmarks/serve.py --url http://127.0.0.1:8001 --model NAME --name llama.cpp     # another server

Every request has its own prompt and seed. Some requests (`--alone`) are repeated one at a time and must give the same
text; for other servers, which do not promise that, the difference is only reported.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

OPENINGS = (
    "Once upon a time",
    "The best way to",
    "In the beginning",
    "She opened the door and",
    "Rivers are",
)


def body(model, number, tokens):
    prompt = f"{OPENINGS[number % len(OPENINGS)]} {number}"
    told = {"model": model, "prompt": prompt, "seed": number, "max_tokens": tokens, "stream": True}
    return json.dumps({**told, "temperature": 0.8, "top_p": 0.95}).encode()


def ask(url, data):
    """The text, its tokens (a chunk each where nobody counts them), and the seconds to the first one."""
    began, first, text, tokens = time.perf_counter(), None, "", 0
    request = urllib.request.Request(f"{url}/v1/completions", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - began
                choice = json.loads(line[6:])["choices"][0]
                text += choice["text"]
                tokens += bool(choice["text"])
    return text, tokens, first


def tokens_so_far(url):
    """What our server has counted; None of another one."""
    try:
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            found = re.findall(rb"unspool_generated_tokens_total\{.*\} (\S+)", answer.read())
    except urllib.error.HTTPError:
        return None
    return sum(map(float, found)) if found else None


def measured(url, bodies, at_once):
    """All texts, tokens a second, and the times to first tokens."""
    before, began = tokens_so_far(url), time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(lambda data: ask(url, data), bodies))
    seconds, after = time.perf_counter() - began, tokens_so_far(url)
    tokens = sum(it[1] for it in found) if after is None else after - (before or 0)
    return [it[0] for it in found], tokens / seconds, [it[2] for it in found if it[2] is not None]


@contextmanager
def served(model, requests, *options):
    """The address of a server of ours, until it is over."""
    command = [sys.executable, "-m", "unspool", "serve", model, "--port", "0", "--queue", str(requests)]
    command += options
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        lines = (re.search(r"running on (http://\S+)", line) for line in server.stderr)
        yield next(found[1] for found in lines if found)
    finally:
        server.terminate()
        server.communicate()


def report(args, url):
    bodies = [body(args.model, number, args.tokens) for number in range(args.requests)]
    ask(url, bodies[0])
    alone, one_rate, one_first = measured(url, bodies[: args.alone], 1)
    texts, rate, first = measured(url, bodies, args.at_once)
    lost = sum(not text for text in texts)
    mixed = sum(text != other for text, other in zip(texts, alone, strict=False))
    late = statistics.quantiles(first, n=20)[-1]
    weights = "" if args.url else f", weights {args.weights}"
    print(f"{args.name}{weights}: {args.requests} requests of {args.tokens} tokens, {args.at_once} at once")
    print(f"  lost {lost}; of {len(alone)} asked for alone, too, {mixed} said something else")
    print(f"  tokens a second: {rate:.1f}; one at a time {one_rate:.1f}; {rate / one_rate:.2f} times as many")
    print(f"  first token: median {statistics.median(first):.2f} s, 95 % within {late:.2f} s; ", end="")
    print(f"one at a time {statistics.median(one_first):.2f} s")
    return 1 if lost or (mixed and not args.url) else 0


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", default="float32", help="how our server keeps them: stored, int8, …")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--alone", type=int, default=10, help="how many are asked again one at a time")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--name", default="unspool", help="what it is called in the report")
    args = parser.parse_args(argv)
    if args.url:
        return report(args, args.url)
    with served(args.model, args.requests, "--weights", args.weights) as url:
        return report(args, url)


if __name__ == "__main__":
    sys.exit(main())
