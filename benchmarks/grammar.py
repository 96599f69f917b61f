"""Cost and correctness of JSON-schema constraints: 200 texts of 10 schemas.

    python benchmarks/grammar.py

For each schema in grammar_schemas.json: 5 texts by greedy decoding, 10 sampled, 5 by beam search with 5 beams. Each must
parse and validate (jsonschema). The table shows, per schema and in total, the number of valid texts, the tokens, and
microseconds per token of the grammar transform (`rule`: parser, mask, scores), of llguidance inside it (`mask`), of the
model's step, and of everything else (`rest`). Times are processor time on one thread. The vocabulary tables, which are
built once, are printed separately.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import torch
from jsonschema import Draft202012Validator

import unspool as us
from unspool.decode.transforms.grammar import Matchers, TokenBytes

SCHEMAS = Path(__file__).with_name("grammar_schemas.json")
PROMPTS = [
    "An example in JSON:\n",
    "{",
    "The answer, as JSON, is ",
    "```json\n",
    "Here is a record of what we know:\n",
]


class Clock:
    """Seconds spent inside a function, which it wraps, and how many rows it was called with."""

    def __init__(self, owner: Any, name: str) -> None:
        self.seconds, self.rows = 0.0, 0
        inner = getattr(owner, name)

        def timed(it: Any, *arguments: Any, **named: Any) -> Any:
            begun = time.process_time()
            found = inner(it, *arguments, **named)
            self.seconds += time.process_time() - begun
            self.rows += len(arguments[0]) if name == "__call__" else 1
            return found

        setattr(owner, name, timed)

    def take(self) -> tuple[float, int]:
        """What was spent since the last time."""
        found, self.seconds, self.rows = (self.seconds, self.rows), 0.0, 0
        return found


def texts(model: Any, rule: us.Grammar, longest: int) -> list[us.Output]:
    """Five, ten and five."""
    asked: dict[str, Any] = {"max_new_tokens": longest, "seed": 1}
    found: list[Any] = us.generate(model, PROMPTS, us.Greedy(rule), **asked)
    drawn: list[Any] = us.generate(model, PROMPTS, us.Sample(us.TopP(0.95), rule), n=2, **asked)
    beam: list[Any] = us.generate(model, PROMPTS, us.Beam(5, rule), **asked)
    return [*found, *(out for group in drawn for out in group), *beam]


def valid(schema: Any, out: us.Output) -> bool:
    try:
        # 1.11 is a multiple of 0.01 in decimals, and not in binary fractions.
        exact = json.loads(json.dumps(schema), parse_float=Decimal)
        Draft202012Validator(exact).validate(json.loads(out.text, parse_float=Decimal))
    except Exception as error:
        print(f"{out.finish_reason}: {out.text!r}: {str(error).splitlines()[0]}", file=sys.stderr)
        return False
    return out.finish_reason == "eos"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--max-new-tokens", type=int, default=250)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    model = us.load(asked.model)
    us.generate(model, PROMPTS, us.Greedy(), max_new_tokens=2)  # compiles what is to be compiled
    begun = time.process_time()
    us.generate(model, "a", us.Greedy(us.Grammar(regex="a")), max_new_tokens=2)
    print(f"tables of {model.vocab_size} tokens, once: {time.process_time() - begun:.2f} s")
    rule_clock, mask_clock = Clock(us.Grammar, "__call__"), Clock(Matchers, "_after")
    bits_clock = Clock(TokenBytes, "allowed")
    print(f"{'schema':10} {'valid':>7} {'rows':>6} {'rule':>6} {'mask':>6} {'rest':>7}   µs a row and token")
    whole = [0, 0, 0, 0.0, 0.0, 0.0]
    for name, schema in json.loads(SCHEMAS.read_text(encoding="utf-8")).items():
        begun = time.process_time()
        outs = texts(model, us.Grammar(json_schema=schema), asked.max_new_tokens)
        spent = time.process_time() - begun
        rule, rows = rule_clock.take()
        mask = mask_clock.take()[0] - bits_clock.take()[0]
        right = sum(valid(schema, out) for out in outs)
        line = [right, len(outs), rows, rule, mask, spent - rule]
        whole = [a + b for a, b in zip(whole, line, strict=True)]
        show(name, line)
    show("all", whole)
    return 0 if whole[0] == whole[1] else 1


def show(name: str, line: list[Any]) -> None:
    right, count, rows, *times = line
    per = "".join(f"{1e6 * each / rows:{width}.0f}" for each, width in zip(times, (7, 7, 8), strict=True))
    print(f"{name:10} {right:3}/{count:3} {rows:6}{per}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
