"""Many requests to a server: is anything lost or mixed up, and what is gained by reading them side by side?

    python benchmarks/serve.py --model smollm2 --requests 200 --at-once 32

Every request has its own prompt and seed. Each is asked again one at a time (a part of them, `--alone`), and
must then say the same.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

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
    """The text, how many chunks it came in, and the seconds to the first one."""
    began, first, text, chunks = time.perf_counter(), None, "", 0
    request = urllib.request.Request(f"{url}/v1/completions", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - began
                text += json.loads(line[6:])["choices"][0]["text"]
                chunks += 1
        assert line == b"\n" or b"[DONE]" in line
    return text, chunks, first


def tokens_so_far(url):
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        found = re.search(rb"unspool_generated_tokens_total\{\} (\S+)", answer.read())
    return float(found[1]) if found else 0.0


def measured(url, bodies, at_once):
    """All answers, tokens a second, and the times to first tokens."""
    before, began = tokens_so_far(url), time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(lambda data: ask(url, data), bodies))
    rate = (tokens_so_far(url) - before) / (time.perf_counter() - began)
    return [text for text, _, _ in found], rate, [first for _, _, first in found if first is not None]


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--alone", type=int, default=10, help="how many are asked again one at a time")
    parser.add_argument("--tokens", type=int, default=32)
    args = parser.parse_args(argv)
    command = [
        sys.executable,
        "-m",
        "unspool",
        "serve",
        args.model,
        "--port",
        "0",
        "--queue",
        str(args.requests),
    ]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        url = None
        for line in server.stderr:
            if found := re.search(r"running on (http://\S+)", line):
                url = found[1]
                break
        assert url, "the server did not begin"
        bodies = [body(args.model, number, args.tokens) for number in range(args.requests)]
        ask(url, bodies[0])
        alone, one_rate, one_first = measured(url, bodies[: args.alone], 1)
        texts, rate, first = measured(url, bodies, args.at_once)
        lost = sum(not text for text in texts)
        mixed = sum(text != other for text, other in zip(texts, alone, strict=False))
        print(
            f"{args.requests} requests, {args.at_once} at once: {lost} lost, {mixed} of {len(alone)} other than alone"
        )
        print(
            f"tokens a second: {rate:.1f}, one at a time {one_rate:.1f}: {rate / one_rate:.2f} times as many"
        )
        late = statistics.quantiles(first, n=20)[-1]
        print(f"first token: median {statistics.median(first):.2f} s, 95 % within {late:.2f} s")
        print(f"first token, one at a time: median {statistics.median(one_first):.2f} s")
        return 1 if lost or mixed else 0
    finally:
        server.terminate()
        server.communicate()


if __name__ == "__main__":
    sys.exit(main())
