"""`unspool lab report`: all claims on one page, with verdicts, numbers and figures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from unspool.cli.lab.choice import add_result_options, known, say
from unspool.cli.output import check_output, reserved
from unspool.errors import escape_json

SUMMARY = "Write one page of all claims: verdicts, numbers with their spread, figures."
EXAMPLES = """examples:
  unspool lab report -o lab.html
  unspool lab report --json > lab.json
  unspool lab report --from lab.json --markdown lab.md

The HTML page is whole in itself: nothing is fetched, the figures are inside it. The figures of --markdown are
written beside it, to img/lab. --json is everything that was measured, and --from makes pages of it anywhere.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool lab report` takes."""
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="the page, as HTML")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="the page, as Markdown")
    parser.add_argument("--json", action="store_true", help="print everything that was measured")
    parser.add_argument("--from", type=Path, dest="file", metavar="PATH", help="what --json has written")
    add_result_options(parser)


def run(args: argparse.Namespace) -> int:
    """Gather, then write."""
    if not (args.output or args.markdown or args.json):
        raise ValueError("say what to write: -o page.html, --markdown page.md or --json")
    for path in (args.output, args.markdown):
        if path is not None:
            check_output(path)

    from unspool.lab.claims import CLAIMS
    from unspool.lab.report import html_page, markdown_page, write_figures
    from unspool.lab.results import findings_of_file

    with reserved(args.output), reserved(args.markdown):
        found = findings_of_file(args.file, CLAIMS) if args.file else known(args, CLAIMS, say)
        if absent := [it.claim.name for it in found if not it.results]:
            say(f"not run yet: {', '.join(absent)}; `unspool lab run --all` does")
        if args.output:
            args.output.write_text(html_page(found, quick=args.quick), encoding="utf-8")
            say(f"wrote {args.output}")
        if args.markdown:
            write_figures(found, args.markdown)
            args.markdown.write_text(markdown_page(found), encoding="utf-8")
            say(f"wrote {args.markdown}")
    if args.json:
        # A claim a line, so that a change can be seen.
        claims = ",\n".join(escape_json(json.dumps(it.record(), ensure_ascii=False)) for it in found)
        print(f'{{"claims": [\n{claims}\n]}}')
    return 0
