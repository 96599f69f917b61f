"""`unspool diagnose loops | beams | trap`: loops by decoder, the beam search curse, the likelihood trap."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from unspool.cli.decoders import add_decoders_option, named_decoders
from unspool.cli.models import load_model
from unspool.cli.output import figure_file, print_json, print_message, print_table
from unspool.cli.parser import Command, add_figure_option, add_json_option, add_model_argument, positive
from unspool.cli.texts import add_reference_options, check_readable, reference_texts, text_layout

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
MAX_PERIODS = 8
"""Loop periods that the table lists per decoder."""


# ---- loops


def _add_loops_options(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_reference_options(parser, texts=20)
    add_decoders_option(parser)
    parser.add_argument(
        "--max-new-tokens", type=positive, default=128, metavar="N", help="tokens per text (default: 128)"
    )
    add_figure_option(parser)
    add_json_option(parser)


def _loops(args: argparse.Namespace) -> int:
    specs = named_decoders(args.decoder, None, LOOP_DECODERS)

    import unspool as us
    from unspool.diagnose.evaluation_texts import find_prompts
    from unspool.diagnose.text_loops import loop_rates
    from unspool.plots.figures import draw_loops

    decoders = {name: us.parse(spec) for name, spec in specs.items()}
    with figure_file(args.figure):
        model = load_model(args)
        check_readable(args.text)
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
        if args.figure:
            draw_loops(result, args.figure)
    if args.json:
        rows = [{**asdict(it), "rate": it.rate} for it in result.decoders]
        print_json({"of": texts.source, "verdict": result.verdict, "decoders": rows})
    else:
        print(f"continuations of {texts.source}, up to {result.tokens} tokens")
        print_table(
            ["decoder", "loops", "of", "rate", "≈ loops", "rep-4", "periods"],
            [
                [
                    it.decoder,
                    str(len(it.periods)),
                    str(it.texts),
                    f"{it.rate:.0%}",
                    str(it.approximate),
                    f"{it.rep_4:.3f}",
                    " ".join(map(str, sorted(it.periods)[:MAX_PERIODS]))
                    + " …" * (len(it.periods) > MAX_PERIODS),
                ]
                for it in result.decoders
            ],
        )
        print(result.verdict)
    return 0


# ---- beams


def _add_beams_options(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_reference_options(parser, texts=64)
    parser.add_argument(
        "--widths",
        type=positive,
        nargs="+",
        default=[1, 2, 4, 8, 16, 32],
        metavar="N",
        help="beam widths (default: 1 2 4 8 16 32)",
    )
    parser.add_argument(
        "--beam", default="Beam(1)", metavar="SPEC", help="decoder whose width is varied (default: Beam(1))"
    )
    parser.add_argument(
        "--length", type=positive, default=32, metavar="N", help="tokens of the reference (default: 32)"
    )
    add_figure_option(parser)
    add_json_option(parser)


def _beams(args: argparse.Namespace) -> int:
    import unspool as us
    from unspool.diagnose.beam_search_curse import beam_widths
    from unspool.plots.figures import draw_widths

    beam = us.parse(args.beam)
    if not isinstance(beam, us.Beam):
        raise ValueError(
            f"--beam {args.beam} is not a Beam: write Beam(1, length_penalty=GNMT(0.6)), for example"
        )
    with figure_file(args.figure):
        model = load_model(args)
        texts = reference_texts(model, args, max_tokens=args.prompt + args.length)
        result = beam_widths(model, texts.pairs, args.widths, beam=beam)
        if args.figure:
            draw_widths(result, args.figure)
    if args.json:
        points = [asdict(it) for it in result.points]
        print_json({"of": texts.source, "verdict": result.verdict, "cursed": result.cursed, "points": points})
    else:
        print(f"beams on {texts.source}, {len(texts.pairs)} texts")
        print_table(
            ["width", "log p", "length", "ratio", "F₁", "empty", "ended"],
            [
                [
                    str(it.width),
                    f"{it.logp:.2f}",
                    f"{it.length:.1f}",
                    f"{it.ratio:.3f}",
                    f"{it.quality:.3f}",
                    f"{it.empty:.0%}",
                    f"{it.ended:.0%}",
                ]
                for it in result.points
            ],
        )
        print(result.verdict)
    return 0


# ---- trap


def _add_trap_options(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_reference_options(parser, texts=64)
    parser.add_argument(
        "--length", type=positive, default=64, metavar="N", help="tokens that are scored (default: 64)"
    )
    parser.add_argument(
        "--phrase", type=positive, default=8, metavar="N", help="tokens that are repeated (default: 8)"
    )
    add_figure_option(parser)
    add_json_option(parser)


def _trap(args: argparse.Namespace) -> int:
    from unspool.diagnose.likelihood_traps import likelihood_trap
    from unspool.plots.figures import draw_trap

    with figure_file(args.figure):
        model = load_model(args)
        texts = reference_texts(model, args, max_tokens=args.prompt + args.length)
        result = likelihood_trap(model, texts.pairs, length=args.length, phrase=args.phrase, seed=args.seed)
        if args.figure:
            draw_trap(result, args.figure)
    if args.json:
        kinds = {kind: asdict(it) for kind, it in result.kinds.items()}
        print_json({"of": texts.source, "verdict": result.verdict, "trapped": result.trapped, "kinds": kinds})
    else:
        print(f"log p per token, on {texts.source}")
        print_table(
            ["", "texts", "log p", "95 % interval"],
            [
                [kind, str(len(result.by_text[kind])), f"{it.value:.3f}", f"{it.low:.3f} … {it.high:.3f}"]
                for kind, it in result.kinds.items()
            ],
        )
        print(result.verdict)
    return 0


LOOPS = Command("Count texts that end in a loop, by decoder.", LOOPS_EXAMPLES, _add_loops_options, _loops)
BEAMS = Command(
    "Measure the beam search curse: length and quality by beam width.",
    BEAMS_EXAMPLES,
    _add_beams_options,
    _beams,
)
TRAP = Command(
    "Measure the likelihood trap: log p of repetition, human text and shuffled text.",
    TRAP_EXAMPLES,
    _add_trap_options,
    _trap,
)
