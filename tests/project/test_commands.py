"""The parser accepts every command that a document or --help shows; scripts exist and have the options shown."""

import re
import shlex

import pytest

from unspool.cli.commands import command_parser

BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```|((?:^    .*\n)+)", re.MULTILINE | re.DOTALL)
UNSPOOL = re.compile(r"^(?:\$ | {4})?(unspool .*?)(?:\s+#.*|\s*\|.*|\s+> \S+)?$", re.MULTILINE)
SCRIPT = re.compile(r"python ((?:benchmarks|docs|recipes)/\w+\.py)([^`\n#|]*)")


def documents(root):
    return [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]


def shown(page):
    """The commands of unspool in a page's blocks; a backslash continues a line."""
    blocks = "\n".join(fence or indented for fence, indented in BLOCK.findall(page))
    return [found for found in UNSPOOL.findall(re.sub(r"\\\n\s*", "", blocks)) if "…" not in found]


def unparsed(page, inline=False):
    """The commands that the parser rejects; with `inline`, also those between backquotes."""
    found, commands = [], shown(page)
    if inline:
        commands += re.findall(r"`(unspool [^`…]+)`", page)
    for command in commands:
        try:
            command_parser().parse_args(shlex.split(command)[1:])
        except SystemExit:
            found.append(command)
    return found


def unknown(page, root):
    """Scripts that do not exist, and options that a script does not have."""
    found = []
    for name, options in SCRIPT.findall(page):
        path = root / name
        source = path.read_text(encoding="utf-8") if path.is_file() else ""
        found += [] if source else [name]
        asked = re.findall(r"--[a-z-]+", options) if source else []
        found += [f"{name} {option}" for option in asked if not re.search(f'"(--)?{option[2:]}"', source)]
    return found


def test_the_parser_accepts_every_command_of_the_documents(root):
    pages = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in documents(root)}
    assert {name: wrong for name, page in pages.items() if (wrong := unparsed(page))} == {}
    assert {name: wrong for name, page in pages.items() if (wrong := unknown(page, root))} == {}
    assert len(shown(pages["README.md"])) > 3


@pytest.mark.parametrize("page", ["follow-the-lecture", "reproduce-a-paper"])
def test_the_parser_accepts_the_commands_in_tables(page, root):
    assert unparsed((root / f"docs/{page}.md").read_text(encoding="utf-8"), inline=True) == []


@pytest.mark.parametrize(
    "page",
    [
        "```sh\nunspool generate x --tempreature 3  # hot\n```\n",
        "```console\n$ unspool generate x \\\n    --tempreature 3 | wc\n2\n```\n",
        "text\n\n    unspool no-such-verb\n",
    ],
)
def test_a_wrong_command_is_found(page, capsys):
    assert len(unparsed(page)) == 1
    assert unparsed("`unspool none`") == []
    assert unparsed("`unspool none`", inline=True) == ["unspool none"]
    assert unparsed("```sh\nunspool generate x --greedy | wc  # y\nls\n```\n`unspool nothing`") == []


def test_a_wrong_script_is_found(tree):
    root = tree({"benchmarks/a.py": 'add_argument("--n")'})
    page = "`python benchmarks/a.py --n 3` and `python benchmarks/a.py --m 3`, or\n\n    python benchmarks/b.py --n 3\n"
    assert unknown(page, root) == ["benchmarks/a.py --m", "benchmarks/b.py"]


def unnamed(root):
    """Benchmarks that `make bench` does not run and no document shows with a command."""
    places = [root / "Makefile", *(root / "docs").rglob("*.md")]
    said = {name for path in places for name, _ in SCRIPT.findall(runs(path))}
    return [
        path.name
        for path in sorted((root / "benchmarks").glob("*.py"))
        if f"benchmarks/{path.name}" not in said
    ]


def runs(path):
    return path.read_text(encoding="utf-8").replace("$(BIN)/", "")


def test_every_benchmark_is_documented(root):
    assert unnamed(root) == []


def test_an_undocumented_benchmark_is_found(tree):
    root = tree(
        {
            "Makefile": "bench:\n\t$(BIN)/python benchmarks/a.py\n",
            "docs/x.md": "`python benchmarks/b.py --n 1`; c.py",
            **{f"benchmarks/{name}.py": "" for name in "abc"},
        }
    )
    assert unnamed(root) == ["c.py"]
