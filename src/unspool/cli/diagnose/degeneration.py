"""`unspool diagnose loops | beams | trap`: loops by decoder, the beam search curse, the likelihood trap."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial
from pathlib import Path

from unspool.cli.decoders import add_decoders_option
from unspool.cli.models import load_model
from unspool.cli.output import Result, Table, print_message
from unspool.cli.parser import add_model_argument, command, number, option
from unspool.cli.texts import add_reference_options, reference_texts, text_layout

LOOPS_EXAMPLES = """examples:
  unspool diagnose loops smollm2 --text prompts.jsonl
  unspool diagnose loops smollm2 --text articles.jsonl --texts 20
  unspool diagnose loops runs/language --decoder "Greedy()" --decoder "Sample()" --figure loops.svg --json

Each line is continued: {"prompt": "…"} and {"messages": […]} from their end, a text
or a line of a plain file from its first --prompt tokens. A text loops if it ends with a phrase
three times in a row, or with one token six times. "≈ loops" are texts most of whose last 96 words
repeat exactly or approximately (other numbers, other case, some other words). The figure shows
log p by repetition of the loop: it rises if the loop reinforces itself.
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
    "width": "{it.width}",
    "log p": "{it.logp:.2f}",
    "length": "{it.length:.1f}",
    "ratio": "{it.ratio:.3f}",
    "F₁": "{it.quality:.3f}",
    "empty": "{it.empty:.0%}",
    "ended": "{it.ended:.0%}",
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
        warn=print_message,
    )
    prompts = [prompt for prompt, _ in texts.pairs]
    result = loop_rates(model, prompts, decoders, max_new_tokens=args.max_new_tokens, seed=args.seed)
    rows = []
    for decoder in result.decoders:
        periods = " ".join(map(str, sorted(decoder.periods)[:MAX_PERIODS]))
        more = " …" * (len(decoder.periods) > MAX_PERIODS)
        counts = [
            str(len(decoder.periods)),
            str(decoder.texts),
            f"{decoder.rate:.0%}",
            str(decoder.approximate),
        ]
        rows.append([decoder.decoder, *counts, f"{decoder.rep_4:.3f}", periods + more])
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
    texts = reference_texts(model, args, max_tokens=args.prompt + args.length).take(args.texts, args.seed)
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
    texts = reference_texts(model, args, max_tokens=args.prompt + args.length).take(args.texts, args.seed)
    result = likelihood_trap(model, texts.pairs, length=args.length, phrase=args.phrase, seed=args.seed)
    kinds = {kind: asdict(it) for kind, it in result.kinds.items()}
    rows = [
        [kind, str(len(result.by_text[kind])), f"{it.value:.3f}", f"{it.low:.3f} … {it.high:.3f}"]
        for kind, it in result.kinds.items()
    ]
    table = Table(["", "texts", "log p", "95 % interval"], rows)
    return Result(
        [{"of": texts.source, "verdict": result.verdict, "trapped": result.trapped, "kinds": kinds}],
        [f"log p per token, on {texts.source}", table, result.verdict],
        partial(draw_trap, result),
    )
