"""The commands of `unspool`, their parser, and shell completion generated from it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

import unspool
from unspool.cli import chat, compare, compile, diagnose, evaluate, generate, lab, predict, rate, serve, train  # noqa: A004
from unspool.cli.parser import (
    Command,
    CommandGroup,
    Parser,
    add_commands,
    add_global_options,
    command,
    option,
)

COMPLETION_EXAMPLES = """examples:
  source <(unspool completion bash)
  unspool completion zsh > ~/.zfunc/_unspool

For every new shell, put the first line into ~/.bashrc or ~/.zshrc (with zsh instead of bash there).
"""


def command_parser() -> Parser:
    parser = Parser(
        prog="unspool",
        description="Decode, train, measure and serve language models.",
        epilog='example:\n  unspool generate "Once upon a time" --temperature 0.8 --top-p 0.9 --seed 1',
    )
    parser.add_argument("--version", action="version", version=f"unspool {unspool.__version__}")
    add_global_options(parser)
    add_commands(parser, COMMANDS, "COMMAND")
    return parser


# ---- unspool completion


@command(
    COMPLETION_EXAMPLES,
    option("shell", choices=("bash", "zsh"), metavar="SHELL", help="bash or zsh"),
    json=None,
)
def print_completion(args: argparse.Namespace) -> int:
    """Print a shell completion script."""
    print(completion_script(command_parser(), args.shell), end="")
    return 0


def _parsers(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every (sub)command as its words and its parser."""
    yield path, parser
    for name, sub in _subcommands(parser).items():
        yield from _parsers(sub, (*path, name))


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {name: sub for action in actions for name, sub in action.choices.items()}


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """A script that completes commands, options and their choices in bash or zsh."""
    zsh = "#compdef unspool\nautoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    paths, words, choices = [], [], []
    for path, sub in _parsers(parser):
        if path:
            paths.append(shlex.quote(" ".join(path)))
        offered = [*_subcommands(sub), *sorted(sub._option_string_actions)]
        words.append(f"    {shlex.quote(' '.join(path))}) words={shlex.quote(' '.join(offered))} ;;")
        for action in sub._actions:
            if action.choices and not isinstance(action, argparse._SubParsersAction):
                values = shlex.quote(" ".join(map(str, action.choices)))
                if not action.option_strings:
                    words[-1] = words[-1].replace(" ;;", f"; words+=' '{values} ;;")
                choices += [
                    f"    {shlex.quote(' '.join((*path, option)))}) words={values} ;;"
                    for option in action.option_strings
                ]
    return f"""{zsh}# bash completion of unspool
_unspool() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" path="" word words=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "${{path:+$path }}$word" in
      {"|".join(paths)}) path="${{path:+$path }}$word" ;;
    esac
  done
  case "$path" in
{chr(10).join(words)}
  esac
  case "$path $previous" in
{chr(10).join(choices)}
  esac
  COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o default -F _unspool unspool
"""


COMMANDS: dict[str, Command | CommandGroup] = {
    "chat": chat.chat,
    "compare": compare.compare,
    "compile": compile.compile_kernels,
    "completion": print_completion,
    "diagnose": diagnose.COMMAND,
    "evaluate": evaluate.COMMAND,
    "generate": generate.generate,
    "lab": lab.COMMAND,
    "predict": predict.predict,
    "rate": rate.COMMAND,
    "serve": serve.serve,
    "train": train.train,
}
