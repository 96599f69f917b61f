"""Means, intervals and tables of finished cells, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from bat.cells import Found
from bat.plan import verdict
from unspool.lab.inference import t_interval

CONTRASTS = (("BA-ε", "epsilon"), ("BA-η", "eta"), ("BA-p", "top-p"), ("min-p", "top-p"))
NAMES = {"epsilon": "ε", "eta": "η", "sample": "pure sampling"}
WORDS = {"rejected", "sampler", "difference", "primary quantity", "verdict", "language"}
"""Columns that hold words, not numbers."""
Format = Callable[[float], str]


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def plain(value: float) -> str:
    return f"{value:.2f}"


def fine(value: float) -> str:
    return f"{value:.4f}"


def perplexity(value: float) -> str:
    return f"{math.exp(value):.0f}"


MEASURES: dict[str, tuple[str, Format]] = {
    "mauve_states": ("MAUVE, states", percent),
    "mauve_sentences": ("MAUVE, sentences", percent),
    "rep_1": ("rep-1, %", percent),
    "rep_4": ("rep-4, %", percent),
    "distinct_2": ("distinct-2, %", percent),
    "trigram_nll": ("trigram perplexity", perplexity),
    "own_nll": ("own −log p", plain),
}
"""Key in a cell → column of the table."""


def shown(values: Sequence[float], write: Format) -> str:
    """Return the mean with its interval."""
    if not values:
        return "–"
    low, high = t_interval(values)
    if math.isinf(low):
        return write(fmean(values))
    return f"{write(fmean(values))} ({write(low)} to {write(high)})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    align = ["---" if it in WORDS else "--:" for it in header]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, align, *rows))


def text_cells(found: Found, share: float, sampler: str) -> dict[int, Mapping[str, Any]]:
    """Return the cells of a sampler by seed."""
    return {
        cell["seed"]: cell
        for cell in found.values()
        if cell.get("sampler") == sampler and cell.get("share") == share and "seed" in cell
    }


def differences(found: Found, better: str, than: str, shares: Sequence[float], measure: str) -> list[float]:
    """Return the difference of two samplers in each seed that has both at all shares, averaged over shares."""
    by_share = []
    for share in shares:
        pair = text_cells(found, share, better), text_cells(found, share, than)
        by_share.append(
            {
                seed: pair[0][seed][measure] - pair[1][seed][measure]
                for seed in pair[0].keys() & pair[1].keys()
                if measure in pair[0][seed]
            }
        )
    seeds = sorted(set.intersection(*map(set, by_share)))
    return [fmean(each[seed] for each in by_share) for seed in seeds]


def settings_table(found: Found) -> str:
    other = found.get("other texts", {}).get("shares", {})
    rows = []
    for it in found["settings"]["settings"]:
        elsewhere = other.get(f"{it['share']:g} {it['sampler']}")
        rows.append(
            [
                f"{it['share']:.0%}",
                NAMES.get(it["sampler"], it["sampler"]),
                f"{it['setting']:.4g}",
                f"{percent(it['rejected'])} ({percent(it['low'])} to {percent(it['high'])})",
                "–"
                if elsewhere is None
                else f"{percent(elsewhere['mean'])} ({percent(elsewhere['low'])} to {percent(elsewhere['high'])})",
            ]
        )
    return table(("share", "sampler", "setting", "rejected there, %", "rejected in other texts, %"), rows)


def conditions(plan: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    yield 0.0, "sample"
    for share in plan["shares"]:
        for sampler in plan["samplers"]:
            yield share, sampler


def texts_table(found: Found, plan: Mapping[str, Any]) -> str:
    columns = {key: it for key, it in MEASURES.items() if any(key in cell for cell in found.values())}
    rows = []
    for name, kind in (("human texts", "human"), *((None, it) for it in conditions(plan))):
        if kind == "human":
            cells, label = {c["seed"]: c for key, c in found.items() if key.startswith("human ")}, ("–", name)
        else:
            cells = text_cells(found, *kind)
            label = (f"{kind[0]:.0%}", NAMES.get(kind[1], kind[1]))
        values = [shown([c[key] for c in cells.values() if key in c], it[1]) for key, it in columns.items()]
        rows.append([*map(str, label), str(len(cells)), *values])
    return table(("rejected", "sampler", "seeds", *(name for name, _ in columns.values())), rows)


def contrasts_table(found: Found, plan: Mapping[str, Any]) -> str:
    formats = {
        "mauve_states": ("MAUVE, states", percent),
        "mauve_sentences": ("MAUVE, sentences", percent),
        "rep_1": ("rep-1, %", percent),
        "rep_4": ("rep-4, %", percent),
        "trigram_nll": ("trigram −log p", plain),
    }
    rows = []
    for share in plan["shares"]:
        for better, than in CONTRASTS:
            if {better, than} <= set(plan["samplers"]):
                values = (
                    shown(differences(found, better, than, [share], key), it[1])
                    for key, it in formats.items()
                )
                rows.append([f"{share:.0%}", f"{better} − {NAMES.get(than, than)}", *values])
    return table(("rejected", "difference", *(name for name, _ in formats.values())), rows)


def primary_table(found: Found, plan: Mapping[str, Any]) -> str:
    rows = []
    for it in plan["primary"]:
        values = differences(found, it["better"], it["than"], it["shares"], it["measure"])
        low, high = t_interval(values) if values else (-math.inf, math.inf)
        shares = " and ".join(f"{share:.0%}" for share in it["shares"])
        decided = verdict(low, high, len(values), plan["seeds"])
        rows.append([it["name"], shares, shown(values, percent), f"{it['power']:.2f}", decided])
    return table(("primary quantity", "rejected", "difference of MAUVE, points", "power", "verdict"), rows)


def languages_table(found: Found, plan: Mapping[str, Any]) -> str:
    cells = [cell for name, cell in found.items() if name.startswith("language ")]
    rows = []
    for kind in dict.fromkeys(cell["kind"] for cell in cells):
        mine = [cell["support"] for cell in cells if cell["kind"] == kind]
        for share, sampler in conditions(plan):
            key = f"{share:g} {sampler}"
            each = [it[key] for it in mine if key in it]
            rows.append(
                [
                    kind,
                    f"{share:.0%}",
                    NAMES.get(sampler, sampler),
                    shown([it["mass_precision"] for it in each], percent),
                    shown([it["recall"] for it in each], percent),
                    shown([1 - it["mass_recall"] for it in each], percent),
                ]
            )
    header = ("language", "rejected", "sampler", "drawn words that are possible, %", "possible words kept, %")
    return table((*header, "true words rejected, %"), rows)


def costs_table(found: Found, plan: Mapping[str, Any]) -> str:
    rows = []
    for share, sampler in conditions(plan):
        cells = list(text_cells(found, share, sampler).values())
        if not cells:
            continue
        drawn = sum(cell["new_tokens"] for cell in cells)
        counts = [
            sum(cell["stats"].get(key, 0) for cell in cells)
            for key in ("tests", "rejected: undecided", "fallbacks")
        ]
        milliseconds = 1e3 * sum(cell["seconds"] for cell in cells) / drawn
        rows.append(
            [
                f"{share:.0%}",
                NAMES.get(sampler, sampler),
                f"{milliseconds:.1f}",
                f"{counts[0] / drawn:.2f}" if counts[0] else "–",
                *(f"{count:.0f}" for count in counts[1:]),
            ]
        )
    return table(("rejected", "sampler", "ms a token", "tests a token", "undecided tests", "fallbacks"), rows)


def tables(found: Found) -> dict[str, str]:
    """Return the tables of the cells that are finished, by title."""
    if "plan" not in found:
        raise SystemExit("the file holds no plan: it is not one of bat_table.py")
    plan, made = found["plan"]["plan"], {}
    if "settings" in found:
        made |= {"Settings": settings_table(found), "Texts": texts_table(found, plan)}
        made |= {"Differences": contrasts_table(found, plan), "Cost": costs_table(found, plan)}
    if plan["primary"]:
        made["Primary quantities"] = primary_table(found, plan)
    if any(name.startswith("language ") for name in found):
        made["Known languages"] = languages_table(found, plan)
    return made


def report(found: Found) -> str:
    """Return all tables, below the hash and date of the plan."""
    parts = [f"{title}\n\n{it}" for title, it in tables(found).items()]
    return "\n\n".join([f"Plan {found['plan']['hash']}, registered {found['plan']['date']}.", *parts]) + "\n"


def update_page(page: str, found: Found) -> str:
    """Replace the tables of a page by those of a run; a table is found by its header."""
    for title, new in tables(found).items():
        header = new.partition("\n")[0]
        before, there, after = page.partition(header)
        if not there:
            raise SystemExit(f"the page has no table for {title}: write its header, {header}")
        rest = after.split("\n")
        end = next((at for at, line in enumerate(rest[1:], start=1) if not line.startswith("|")), len(rest))
        page = before + new + "\n" + "\n".join(rest[end:])
    return page
