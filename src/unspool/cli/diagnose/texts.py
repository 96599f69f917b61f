"""`unspool diagnose loops | beams | trap | calibration | exposure | thresholds | picture`: generated text."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.decoders import add_decoders_option
from unspool.cli.models import load_model
from unspool.cli.output import Result, Table, print_message, progress_bar
from unspool.cli.parser import add_model_argument, command, number, option
from unspool.cli.texts import (
    add_reading_options,
    add_reference_options,
    add_text_options,
    given_texts,
    reference_texts,
    text_layout,
)

if TYPE_CHECKING:
    from unspool.diagnose.exposure_bias import Exposure
    from unspool.diagnose.matched_thresholds import Match

LOOPS_EXAMPLES = """examples:
  unspool diagnose loops smollm2 --text prompts.jsonl
  unspool diagnose loops smollm2 --text articles.jsonl --texts 20
  unspool diagnose loops runs/language --decoder "Greedy()" --decoder "Sample()" --figure loops.svg --json

Each line is continued: {"prompt": "…"} and {"messages": […]} from their end, a text
or a line of a plain file from its first --prompt tokens. --document file takes a prompt from every
--prompt + 8 tokens of the file. A text loops if it ends with a phrase three times in a row, or with
one token six times. "≈ loops" are texts most of whose last 96 words repeat exactly or approximately
(other numbers, other case, some other words). The figure shows log p by repetition of the loop: it
rises if the loop reinforces itself.
"""
BEAMS_EXAMPLES = """examples:
  unspool diagnose beams runs/dates --widths 1 4 16 64
  unspool diagnose beams dates --text pairs.jsonl --beam "Beam(1, length_penalty=GNMT(0.6))"

F₁ compares the tokens of a text with those of the reference; the ratio is that of their lengths. An
encoder–decoder translates the sources of pairs, a language model continues the first --prompt
tokens of texts.
"""
TRAP_EXAMPLES = """examples:
  unspool diagnose trap smollm2 --text articles.jsonl
  unspool diagnose trap runs/dates --figure trap.svg --json

After the first --prompt tokens (or the source) of each text, three continuations are scored: the
true tokens, their first --phrase tokens repeated, and all of them shuffled; and also what the model
generates. Texts are split into pieces of --prompt + --length tokens, and --texts counts pieces;
pieces with at most --phrase tokens after their prompt are left out.
"""
LOOP_DECODERS = ("Greedy()", "Beam(4)", "Sample(Temperature(0.5))", "Sample(TopP(0.9))", "Sample()")
LOOP_COLUMNS = ("decoder", "loops", "of", "rate", "≈ loops", "rep-4", "periods")
MAX_PERIODS = 8
"""Loop periods that the table lists per decoder."""
BEAM_COLUMNS = {
    "width": "{row.width}",
    "log p": "{row.logp:.2f}",
    "length": "{row.length:.1f}",
    "ratio": "{row.ratio:.3f}",
    "F₁": "{row.quality:.3f}",
    "empty": "{row.empty:.0%}",
    "ended": "{row.ended:.0%}",
}


@command(
    LOOPS_EXAMPLES,
    add_model_argument,
    partial(add_reference_options, texts=20),
    add_decoders_option,
    number("--max-new-tokens", 128, "tokens per text"),
    figure=True,
)
def loops(args: argparse.Namespace) -> Result:
    """Count texts that end in a loop, by decoder."""
    import unspool as us
    from unspool.diagnose.evaluation_texts import find_prompts
    from unspool.diagnose.text_loops import loop_rates
    from unspool.plots.figures import draw_loops

    decoders = {spec: us.parse(spec) for spec in args.decoder or LOOP_DECODERS}
    model = load_model(args)
    texts = find_prompts(
        model,
        Path(args.model),
        args.text,
        args.texts,
        args.prompt,
        args.prompt + 8,
        text_layout(args),
        seed=args.seed,
    )
    prompts = [prompt for prompt, _ in texts.pairs]
    result = loop_rates(model, prompts, decoders, max_new_tokens=args.max_new_tokens, seed=args.seed)
    rows = []
    for decoder in result.decoders:
        periods = " ".join(map(str, sorted(decoder.periods)[:MAX_PERIODS]))
        more = " …" * (len(decoder.periods) > MAX_PERIODS)
        counts = len(decoder.periods), decoder.texts, f"{decoder.rate:.0%}", decoder.approximate
        rows.append([decoder.decoder, *map(str, counts), f"{decoder.rep_4:.3f}", periods + more])
    records = [{**asdict(decoder), "rate": decoder.rate} for decoder in result.decoders]
    title = f"continuations of {texts.source}, up to {result.tokens} tokens"
    return Result(
        [{"of": texts.source, "verdict": result.verdict, "decoders": records}],
        [title, Table(LOOP_COLUMNS, rows), result.verdict],
        partial(draw_loops, result),
    )


@command(
    BEAMS_EXAMPLES,
    add_model_argument,
    partial(add_reference_options, texts=64),
    number("--widths", [1, 2, 4, 8, 16, 32], "beam widths"),
    option(
        "--beam", default="Beam(1)", metavar="SPEC", help="decoder whose width is varied (default: Beam(1))"
    ),
    number("--length", 32, "tokens of the reference"),
    figure=True,
)
def beams(args: argparse.Namespace) -> Result:
    """Measure the beam search curse: length and quality by beam width."""
    import unspool as us
    from unspool.diagnose.beam_search_curse import beam_widths
    from unspool.plots.figures import draw_widths

    beam = us.parse(args.beam)
    if not isinstance(beam, us.Beam):
        raise ValueError(
            f"--beam {args.beam} is not a Beam: write Beam(1, length_penalty=GNMT(0.6)), for example"
        )
    model = load_model(args)
    texts = reference_texts(model, args, args.length).take(args.texts, args.seed)
    result = beam_widths(model, texts.pairs, args.widths, beam=beam)
    points = [asdict(point) for point in result.points]
    title = f"beams on {texts.source}, {len(texts.pairs)} texts"
    return Result(
        [{"of": texts.source, "verdict": result.verdict, "cursed": result.cursed, "points": points}],
        [title, Table.of(BEAM_COLUMNS, result.points), result.verdict],
        partial(draw_widths, result),
    )


@command(
    TRAP_EXAMPLES,
    add_model_argument,
    partial(add_reference_options, texts=64),
    number("--length", 64, "tokens that are scored"),
    number("--phrase", 8, "tokens that are repeated"),
    figure=True,
)
def trap(args: argparse.Namespace) -> Result:
    """Measure the likelihood trap: log p of repetition, human text and shuffled text."""
    from unspool.diagnose.likelihood_traps import likelihood_trap
    from unspool.plots.figures import draw_trap

    model = load_model(args)
    texts = reference_texts(model, args, args.length).take(args.texts, args.seed)
    result = likelihood_trap(model, texts.pairs, length=args.length, phrase=args.phrase, seed=args.seed)
    kinds = {kind: asdict(interval) for kind, interval in result.kinds.items()}
    rows = [
        [kind, str(len(result.by_text[kind])), f"{each.value:.3f}", f"{each.low:.3f} … {each.high:.3f}"]
        for kind, each in result.kinds.items()
    ]
    table = Table(["", "texts", "log p", "95 % interval"], rows)
    return Result(
        [{"of": texts.source, "verdict": result.verdict, "trapped": result.trapped, "kinds": kinds}],
        [f"log p per token, on {texts.source}", table, result.verdict],
        partial(draw_trap, result),
    )


CALIBRATION_EXAMPLES = """examples:
  unspool diagnose calibration smollm2 --text book.txt --document file
  unspool diagnose calibration runs/dates --bins 10 --figure reliability.svg --json

Compares the probability of the most probable token with how often it is the right one. Texts are
read in pieces of --length tokens after a prompt of --prompt tokens, which is not scored.
"""
CALIBRATION_COLUMNS = {
    "confidence": "{row.low:.2f} … {row.high:.2f}",
    "positions": "{row.count:,}",
    "mean": "{row.confidence:.3f}",
    "right": "{row.accuracy:.3f}",
}
EXPOSURE_EXAMPLES = """examples:
  unspool diagnose exposure runs/dates
  unspool diagnose exposure smollm2 --text book.txt --document file --texts 32
  unspool diagnose exposure runs/language --lengths 1 4 16 --json

Measures the loss of the next tokens of a text after n of its own tokens, and after n tokens sampled
from the model. The gap is above 0 for a perfect model, too: it is also measured on references
sampled from the model and subtracted. The rest is the excess, with a 95 % interval. A run trained
on a language of the package (data.kind = "language") is compared with the exact probabilities
instead; a perfect model then has a gap of 0.

Without --text, a run is measured on its validation set. A language model gets the first --prompt
tokens of each text, an encoder–decoder the source.
"""


@command(
    CALIBRATION_EXAMPLES,
    add_model_argument,
    partial(add_reference_options, texts=128),
    number("--length", 256, "tokens per piece"),
    number("--bins", 15, "bins of confidence"),
    figure=True,
)
def calibration(args: argparse.Namespace) -> Result:
    """Compare a model's confidence with its accuracy: ECE and the reliability diagram."""
    from unspool.evaluate.confidence_calibration import pair_calibration
    from unspool.plots.figures import draw_reliability

    model = load_model(args)
    texts = reference_texts(model, args, args.length).take(args.texts, args.seed)
    result = pair_calibration(model, texts.pairs, bins=args.bins)
    title = f"the most probable token, on {texts.source}, {result.count:,} positions"
    table = Table.of(CALIBRATION_COLUMNS, [bin_ for bin_ in result.bins if bin_.count])
    return Result(
        [{"of": texts.source, "verdict": result.verdict, **asdict(result)}],
        [title, table, result.verdict],
        partial(draw_reliability, result),
    )


@command(
    EXPOSURE_EXAMPLES,
    add_model_argument,
    partial(add_reference_options, texts=128, prompt=8),
    number("--lengths", [1, 2, 4, 8, 16, 32], "numbers of sampled tokens"),
)
def measure_exposure(args: argparse.Namespace) -> Result:
    """Measure exposure bias: the loss after a model's own tokens and after right ones."""
    from unspool.diagnose.exposure_bias import SPAN, exposure, true_exposure

    model = load_model(args)
    texts = reference_texts(model, args, max(args.lengths) + SPAN)
    if texts.language is not None:
        result = true_exposure(model, texts.language, args.lengths, texts=args.texts, seed=args.seed)
    else:
        result = exposure(model, texts.pairs[: args.texts], args.lengths, seed=args.seed)
    points = [{**asdict(point), "gap": point.gap, "excess": point.excess} for point in result.points]
    total = {"gap": result.gap, "excess": result.excess, "interval": asdict(result)["interval"]}
    what = "−log p of the text's next tokens" if result.points[0].lost is None else "KL from the truth"
    return Result(
        [{"of": texts.source, **total, "verdict": result.verdict, "points": points}],
        [f"{what}, nats per token, on {texts.source}", _exposure_table(result), result.verdict],
    )


def _exposure_table(result: Exposure) -> Table:
    from unspool.diagnose.exposure_bias import show_nats

    columns = ["gap", "perfect model"] if result.points[0].lost is None else ["lost", "own, if possible"]
    rows = []
    for point in result.points:
        cells = [show_nats(point.gap), show_nats(point.perfect)]
        if point.lost is not None:
            cells = [f"{point.lost:.1%}", "–" if point.possible is None else show_nats(point.possible)]
        interval = point.interval
        ends = "" if interval is None else f"{show_nats(interval.low)} to {show_nats(interval.high)}"
        numbers = [str(point.length), show_nats(point.right), show_nats(point.own)]
        rows.append([*numbers, *cells, show_nats(point.excess), ends, str(point.texts)])
    return Table(
        ["own tokens", "after right", "after own", *columns, "excess", "95 % interval", "texts"], rows
    )


THRESHOLDS_EXAMPLES = """examples:
  unspool diagnose thresholds smollm2 --text book.txt --document file
  unspool diagnose thresholds smollm2 --text articles.jsonl --share 0.01 0.05 --json

Use a text written by people: samplers are compared fairly if they reject the same share of human
tokens. A text longer than the context is read in windows that overlap by half. An encoder–decoder
is measured on the targets of pairs. The interval is that of the share on other text of the same
kind. The basis-aware test needs a single output matrix: it is left out for KerBS and mixtures.
"""
PICTURE_EXAMPLES = """examples:
  unspool diagnose picture smollm2 "The best thing about summer is" --figure ranks.svg
  unspool diagnose picture smollm2 "Once upon a" --decoder "Sample(MinP(0.1))" --top 30 --figure ranks.png

A decoder is a Sample with truncations, or with BasisAware, which tests the tokens one by one.
Decoders of the default selection that do not work with the model are left out with a message.
"""
THRESHOLD_COLUMNS = {
    "rejects": "{row.share:.2%}",
    "exactly": "{row.rejected:.2%}",
    "95 % interval": "{row.low:.2%}–{row.high:.2%}",
    "of tokens": "{row.tokens:,}",
    "decoder": "{row.decoder}",
}
MIN_INTERVAL_WIDTH = 70
"""Narrower terminals do not show the interval."""


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share: give a number of 0 or more and below 1")
    return share


@command(
    THRESHOLDS_EXAMPLES,
    add_model_argument,
    partial(add_text_options, required=True),
    add_reading_options,
    option(
        "--share",
        type=_share,
        nargs="+",
        default=[0.01],
        metavar="S",
        help="shares of tokens to reject (default: 0.01)",
    ),
    number("--basis-tokens", 2000, "tokens that get the basis-aware test; 0 leaves it out", minimum=0),
    json="one JSON object per sampler and share",
)
def match_thresholds(args: argparse.Namespace) -> Result:
    """Find the settings at which all samplers reject the same share of human tokens."""
    from unspool.diagnose.matched_thresholds import thresholds

    model = load_model(args)
    sources, texts = given_texts(model, args)
    with progress_bar(description="tokens") as update:
        try:
            matches = thresholds(
                model,
                texts,
                args.share,
                sources=sources,
                basis_tokens=args.basis_tokens,
                context=args.context,
                progress=lambda done, total: update(completed=done, total=total),
            )
        except ValueError as error:
            raise ValueError(f"{args.text}: {error}") from error
    if args.basis_tokens and model.output_matrix is None:
        print_message(f"basis-aware samplers are left out: {args.model} does not have a single output matrix")
    return Result(map(asdict, matches), [_thresholds_table(matches)])


def _thresholds_table(matches: Sequence[Match]) -> Table:
    columns = dict(THRESHOLD_COLUMNS)
    if sys.stdout.isatty() and shutil.get_terminal_size().columns < MIN_INTERVAL_WIDTH:
        del columns["95 % interval"]  # --json has it
    return Table.of(columns, sorted(matches, key=lambda match: match.share), left=["decoder"])


@command(
    PICTURE_EXAMPLES,
    add_model_argument,
    option("prompt", metavar="PROMPT", help="text before the token"),
    number("--top", 60, "tokens to show"),
    add_decoders_option,
    figure=True,
    json="one JSON object: prompt, tokens, p, kept (by decoder)",
)
def picture(args: argparse.Namespace) -> Result:
    """Draw the most probable next tokens, and which of them each sampler keeps."""
    import unspool as us  # here, because it imports torch
    from unspool.diagnose.ranked_tokens import DEFAULT_RULES, rank_tokens
    from unspool.plots.figures import draw_ranks

    if not args.figure and not args.json:
        raise ValueError("no output: give --figure FILE or --json")
    decoders = {spec: us.parse(spec) for spec in args.decoder or DEFAULT_RULES}
    for spec, decoder in decoders.items():
        if not isinstance(decoder, us.Sample):
            raise ValueError(f"{spec} does not keep and cut tokens: give a Sample, such as Sample(TopP(0.9))")
    on_error = None if args.decoder else _report_left_out
    picture = rank_tokens(load_model(args), args.prompt, decoders, top=args.top, on_error=on_error)
    return Result([asdict(picture)], [], partial(draw_ranks, picture))


def _report_left_out(spec: str, error: ValueError) -> None:
    print_message(f"{spec} is left out: {error}")
