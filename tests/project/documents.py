"""Run what a document shows: its Python fences and its console sessions.

Python fences run in order in one namespace; an expression with a value behind it (`1 + 1  # 2`) must have that value.
A pycon fence is a session of ">>> " lines, each followed by its output.
In console fences, lines that start with "$ unspool" are commands, and the lines after them are the expected output.
A comment `<!-- output varies -->` before a fence switches the comparison off; `<!-- not run -->` skips the fence.
"""

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

FENCE = re.compile(r"(?:<!-- ([a-z ]+) -->\n+)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Fence(NamedTuple):
    content: str
    varies: bool


def fences(markdown, language):
    """The fences of that language that are to be run."""
    return [
        Fence(content, note == "output varies")
        for note, found, content in FENCE.findall(markdown)
        if found == language and note != "not run"
    ]


def sessions(console):
    """(command, expected output) of a console fence; a backslash at the end of a line continues a command."""
    found = []
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, _, output = part.replace("\\\n", "").partition("\n")
        found.append((command, output.rstrip("\n")))
    return found


def run_command(command, folder):
    """Run `unspool …` with this interpreter; (status, standard output, standard error)."""
    name, *argv = shlex.split(command)
    assert name == "unspool"
    done = subprocess.run(
        [sys.executable, "-m", "unspool", *argv],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


def run_python(snippet, namespace):
    """Run a snippet; {line: value} for expressions whose value differs from the one behind them."""
    wrong, lines = {}, snippet.splitlines()
    for node in ast.parse(snippet).body:
        code, _, comment = lines[node.end_lineno - 1].partition("  # ")
        if isinstance(node, ast.Expr) and re.match(r"['\"\[\d-]|tensor\(|True|False|None", comment):
            value = repr(eval(ast.unparse(node), namespace))
            wrong |= {} if value == comment else {code: value}
        else:
            exec(ast.unparse(node), namespace)
    return wrong


def run_session(session, namespace):
    """Run a session of ">>> " lines; [(line, actual output)] for lines that print something else."""
    wrong = []
    for part in re.split(r"^>>> ", session, flags=re.MULTILINE)[1:]:
        source, _, expected = part.partition("\n")
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(source, "page", "single"), namespace)
            printed = out.getvalue()
        except Exception as error:
            printed = repr(error)
        if printed.rstrip("\n") != expected.rstrip("\n"):
            wrong.append((source, printed))
    return wrong


def run_page(markdown, folder):
    """Run all fences of a page; (number of runs, list of differences)."""
    runs, wrong, namespace = 0, [], {"__name__": "page"}
    for fence in fences(markdown, "pycon"):
        wrong += run_session(fence.content, namespace)
        runs += 1
    for fence in fences(markdown, "python"):
        wrong += run_python(fence.content, namespace).items()
        runs += 1
    for fence in fences(markdown, "console"):
        for command, expected in sessions(fence.content):
            if command.startswith("unspool "):
                status, out, err = run_command(command, folder)
                if status != 0:
                    wrong.append((command, err))
                elif not fence.varies and out.rstrip("\n") != expected:
                    wrong.append((command, out))
                runs += 1
    return runs, wrong
