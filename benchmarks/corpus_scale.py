"""Throughput and memory of `unspool generate --ray`, by the number of rows and workers.

    python benchmarks/corpus_scale.py --json out/corpus_scale.json --figure docs/img/corpus-scale.svg

Short prompts for the built-in model with a few new tokens each. Memory is the PSS of the command and all its child
processes, sampled twice a second (shared pages count once). Throughput is measured from the first written part to the
last, so it excludes the start of Ray and the loading of models; memory includes them. Each run is saved when it ends;
runs that --json already contains are skipped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from unspool.plots.canvas import BLUE, ORANGE, canvas

WORDS = [
    "In",
    "the",
    "beginning",
    "God",
    "said",
    "unto",
    "Moses",
    "and",
    "the",
    "children",
    "of",
    "Israel",
    "went",
    "up",
    "from",
    "thence",
]
PROMPT, NEW_TOKENS = 4, 4
COLOURS = (BLUE, ORANGE)


def write_corpus(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in range(rows):
            first = row % (len(WORDS) - PROMPT)
            prompt = " ".join(WORDS[first : first + PROMPT])
            file.write(json.dumps({"id": f"row {row}", "prompt": prompt, "seed": row}) + "\n")


def family(root: int) -> list[int]:
    """A process and all that it has started, directly or not."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found, ahead = [], [root]
    while ahead:
        found.append(ahead.pop())
        ahead += parents.get(found[-1], [])
    return found


def megabytes(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def parts_of(folder: Path) -> list[float]:
    """When each part was written."""
    return sorted(part.stat().st_mtime for part in folder.glob("part-*.jsonl"))


def measure(rows: int, workers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        corpus, answers = Path(name, "corpus.jsonl"), Path(name, "answers")
        write_corpus(corpus, rows)
        asked = [
            "--prompts",
            corpus,
            "--model",
            "bible",
            "--top-p",
            "0.9",
            "--seed",
            "1",
            "--ray",
            "--output",
            answers,
        ]
        asked += ["--max-new-tokens", str(NEW_TOKENS), "--workers", str(workers)]
        began = time.time()
        command = [sys.executable, "-m", "unspool", "generate", *map(str, asked)]
        with Path(name, "said").open("wb") as said:
            running = subprocess.Popen(command, stdout=said, stderr=said)
            memory = []
            while running.poll() is None:
                each = {process: megabytes(process) for process in family(running.pid)}
                memory.append({"all": sum(each.values()), "command": each.get(running.pid, 0.0)})
                time.sleep(0.5)
        if running.returncode:
            raise SystemExit(Path(name, "said").read_text(encoding="utf-8")[-2000:])
        took, written = time.time() - began, parts_of(answers)
        lines = sum(part.read_bytes().count(b"\n") for part in answers.glob("part-*.jsonl"))
    if lines != rows:
        raise SystemExit(f"{lines} lines were written for {rows} rows")
    first = rows / len(written)  # the rows of the part that the clock starts with
    return {
        "rows": rows,
        "workers": workers,
        "seconds": took,
        "rows_a_second": (rows - first) / (written[-1] - written[0]),
        "peak_mb": {who: max(it[who] for it in memory) for who in ("all", "command")},
        "late_mb": {
            who: _median([it[who] for it in memory[len(memory) // 2 :]]) for who in ("all", "command")
        },
    }


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def show(runs: list[dict[str, Any]]) -> None:
    print("| rows | workers | rows a second | seconds in all | most memory, MB | of the command alone, MB |")
    print("|--:|--:|--:|--:|--:|--:|")
    for run in runs:
        peak = run["peak_mb"]
        print(
            f"| {run['rows']:,} | {run['workers']} | {run['rows_a_second']:.0f} | {run['seconds']:.0f} "
            f"| {peak['all']:.0f} | {peak['command']:.0f} |"
        )


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    with canvas(path, 7.0, 2.8) as figure:
        speed, memory = figure.subplots(1, 2)
        for colour, workers in zip(COLOURS, sorted({run["workers"] for run in runs}), strict=False):
            mine = sorted((run for run in runs if run["workers"] == workers), key=lambda run: run["rows"])
            rows, name = [run["rows"] for run in mine], f"{workers} worker{'s' if workers > 1 else ''}"
            speed.plot(rows, [run["rows_a_second"] for run in mine], "o-", color=colour, label=name)
            memory.plot(
                rows,
                [run["peak_mb"]["all"] for run in mine],
                "o-",
                color=colour,
                label=f"{name}, all processes",
            )
            memory.plot(
                rows,
                [run["peak_mb"]["command"] for run in mine],
                "o--",
                color=colour,
                label=f"{name}, the command",
            )
        for panel, title in ((speed, "rows a second"), (memory, "most memory, MB")):
            panel.set_title(title, loc="left")
            panel.set_xscale("log")
            panel.set_ylim(bottom=0)
            panel.set_xlabel("rows of the corpus")
            panel.spines[["right", "top"]].set_visible(False)
            panel.legend(frameon=False, fontsize=7)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 30_000, 100_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    runs = json.loads(options.json.read_text()) if options.json and options.json.is_file() else []
    for rows in options.rows:
        for workers in options.workers:
            if any((run["rows"], run["workers"]) == (rows, workers) for run in runs):
                continue
            runs.append(measure(rows, workers))
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(runs, indent=1))
            print(json.dumps(runs[-1]), flush=True)
    show(runs)
    if options.figure:
        draw(runs, options.figure)


if __name__ == "__main__":
    main()
