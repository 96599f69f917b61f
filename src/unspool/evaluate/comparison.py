"""Results of `unspool compare`: texts of several decoders for the same prompts, with measures, as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite, nan
from statistics import fmean
from typing import Any

from unspool import decode
from unspool.decode.output import Output
from unspool.errors import clip, replace_control_characters
from unspool.evaluate.diversity import distinct_n, seq_rep_n


def loop_period(output: Output) -> int | None:
    """Return the period of the loop at the end of a text, without EOS; None without a loop."""
    loop = decode.find_loop(output.tokens[:-1] if output.finish_reason == "eos" else output.tokens)
    return None if loop is None else loop.period


def loops_approximately(output: Output) -> bool:
    """Whether most of the last words repeat, exactly or nearly."""
    return decode.find_approximate_loop(output.text or output.tokens) is not None


def measures(*outputs: Output) -> dict[str, Any]:
    """Return the measures of texts together by name; rep-4 is a mean over texts."""
    tokens, logps = (
        [output.tokens for output in outputs],
        [logp for output in outputs for logp in output.logps],
    )
    return {
        "mean_logp": sum(logps) / len(logps) if logps else nan,
        "rep_4": seq_rep_n(tokens, 4),
        "distinct_1": distinct_n(tokens, 1),
        "distinct_2": distinct_n(tokens, 2),
        "length": sum(map(len, tokens)) / len(tokens),
    }


@dataclass(frozen=True)
class DecoderRow:
    """The outputs of one decoder for all prompts."""

    decoder: str
    spec: str
    """The decoder as a string for `unspool.parse`."""
    outputs: tuple[Output, ...]
    """One per prompt."""
    seconds: float

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return sum(len(output.tokens) for output in self.outputs) / self.seconds

    def cells(self) -> tuple[str, ...]:
        """Return log p, rep-4, distinct-1, distinct-2, loops, length and tokens/s as cells of a table."""
        *shares, length = measures(*self.outputs).values()
        return (*(f"{share:.2f}" for share in shares), self.loop_words, f"{length:.0f}", f"{self.speed:.1f}")

    @property
    def loop_words(self) -> str:
        """Loops for a table cell: "–", the period of a single text, or "loops/texts +approximate≈"."""
        periods = [loop_period(output) for output in self.outputs]
        loops = [period for period in periods if period is not None]
        near = sum(
            period is None and loops_approximately(output)
            for period, output in zip(periods, self.outputs, strict=True)
        )
        if not loops and not near:
            return "–"
        if len(periods) == 1:
            return str(loops[0]) if loops else "≈"
        return f"{len(loops)}/{len(periods)}" + f" +{near}≈" * bool(near)


WIDTH, HEIGHT = 320, 84

STYLE = """
:root { color-scheme: light dark;
  --ink: #1d1d1f; --soft: #6b6b70; --line: #d8d8dc; --paper: #fff; --loop: #c0392b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececf0; --soft: #a0a0a8; --line: #3a3a40; --paper: #17171a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 76rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
code { font: 13px/1.4 ui-monospace, monospace; }
a { color: inherit; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin-top: 2.2rem; }
h2 a { color: var(--soft); font-weight: 400; font-size: 13px; text-decoration: none; margin-left: .6rem; }
.soft, figcaption { color: var(--soft); font-size: 13px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 12rem; }
nav ol { columns: 22rem; column-gap: 1.5rem; padding: 0; margin: .5rem 0; }
nav li { break-inside: avoid; margin-left: 2.2rem; }
blockquote { margin: .5rem 0 1rem; padding-inline-start: .8rem; border-inline-start: 3px solid var(--line);
  white-space: pre-wrap; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(21rem, 100%), 1fr)); gap: 1rem; }
article { border: 1px solid var(--line); border-radius: 6px; padding: .8rem; min-width: 0; }
article p { white-space: pre-wrap; margin: .6rem 0 0; }
figure { margin: .5rem 0 0; } svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 10px system-ui, sans-serif; }
svg .axis { stroke: var(--line); } .badge { color: var(--loop); font-weight: 600; }
"""


def html_report(
    rows: Sequence[DecoderRow],
    prompts: Sequence[str],
    about: Mapping[str, object],
    faults: Mapping[str, str] | None = None,
) -> str:
    """Return the HTML page. `about` holds the settings (model, seed, …) by name.

    `faults` explains why decoders are missing from the rows.
    """
    logps = [logp for row in rows for output in row.outputs for logp in output.logps]
    floor = min([-1.0, *filter(isfinite, logps)])
    facts = " · ".join(f"{_plain(name)} <code>{_plain(str(value))}</code>" for name, value in about.items())
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>unspool compare</title>
<style>{STYLE}</style>
<h1>{_count(len(rows), "decoder")}, {_count(len(prompts), "prompt")}</h1>
<p class="soft">{facts}</p>
{_table(rows)}
{_faults(faults or {})}
{_index(prompts)}
{"".join(_section(rows, number, prompts, floor) for number in range(len(prompts)))}
</html>
"""


def _index(prompts: Sequence[str]) -> str:
    if len(prompts) < 2:
        return ""
    items = "".join(
        f'<li><a href="#prompt-{number}" dir="auto">{_plain(clip(" ".join(prompt.split()), 70))}</a></li>\n'
        for number, prompt in enumerate(prompts, start=1)
    )
    return f'<nav id="prompts"><h2>Prompts</h2>\n<ol>{items}</ol></nav>'


def _faults(faults: Mapping[str, str]) -> str:
    items = "".join(
        f"<li><code>{_plain(name)}</code>: {_plain(str(reason))}</li>\n" for name, reason in faults.items()
    )
    return f'<h2>Not compared</h2>\n<ul class="soft">{items}</ul>' if items else ""


def _table(rows: Sequence[DecoderRow]) -> str:
    names = ("decoder", "mean log p", "rep-4", "distinct-1", "distinct-2", "loop", "length", "tokens/s")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows_of_cells = ((_name(row, index), *row.cells()) for index, row in enumerate(rows))
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n" for cells in rows_of_cells)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _section(rows: Sequence[DecoderRow], number: int, prompts: Sequence[str], floor: float) -> str:
    cards = "".join(_card(row, index, row.outputs[number], floor) for index, row in enumerate(rows))
    back = '<a href="#prompts">all prompts</a>' if len(prompts) > 1 else ""
    return (
        f'<h2 id="prompt-{number + 1}">Prompt {number + 1}{back}</h2>\n'
        f'<blockquote dir="auto">{_plain(prompts[number])}</blockquote>\n<div class="cards">{cards}</div>\n'
    )


def _card(row: DecoderRow, index: int, output: Output, floor: float) -> str:
    period, loop = loop_period(output), ""
    if period is not None or loops_approximately(output):
        loop = "approximate loop" if period is None else f"loop of {period}"
        loop = f' <span class="badge">{loop}</span>'
    return (
        f"<article>{_name(row, index)}{loop}\n{_curve(output, index, floor)}\n"
        f'<p dir="auto">{_plain(output.text)}</p><p class="soft">{_count(len(output.tokens), "token")}, '
        f"ended by {_plain(output.finish_reason)}</p></article>\n"
    )


def _curve(output: Output, index: int, floor: float) -> str:
    """Return a plot of log p of every token, from `floor` to 0, with its mean; "" for an empty text."""
    if not output.logps:
        return ""
    mean_logp, step = fmean(output.logps), (WIDTH - 32) / len(output.logps)
    colour, mean = _colour(index), _height(mean_logp, floor)
    # Two points for each token, because a line needs two.
    points = " ".join(
        f"{28 + step * (i + side):.1f},{_height(logp, floor):.1f}"
        for i, logp in enumerate(output.logps)
        for side in (0.3, 0.7)
    )
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="log-probability of every token">'
        f'<line class="axis" x1="28" y1="6" x2="{WIDTH}" y2="6"/>'
        '<text x="24" y="9" text-anchor="end">0</text>'
        f'<text x="24" y="{HEIGHT - 4}" text-anchor="end">{floor:.0f}</text>'
        f'<line x1="28" y1="{mean:.1f}" x2="{WIDTH}" y2="{mean:.1f}" stroke="{colour}" '
        'stroke-dasharray="3 3" opacity=".6"/>'
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.4"/></svg>'
        f"<figcaption>log p of each token; mean {mean_logp:.2f}</figcaption></figure>"
    )


def _height(logp: float, floor: float) -> float:
    # A forced token can have log p = −∞: draw it at the bottom.
    return 6 + (HEIGHT - 14) * (min(1.0, logp / floor) if isfinite(logp) else 1.0)


def _name(row: DecoderRow, index: int) -> str:
    spec = "" if row.spec == row.decoder else f' <code class="soft">{_plain(row.spec)}</code>'
    return f'<strong style="color:{_colour(index)}"><code>{_plain(row.decoder)}</code></strong>{spec}'


def _colour(index: int) -> str:
    # The golden angle keeps neighbouring colours apart for any number of decoders.
    return f"hsl({(210 + index * 137.508) % 360:.0f} 60% 48%)"


def _plain(text: str) -> str:
    """Escape markup and control characters."""
    return escape(replace_control_characters(text))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
