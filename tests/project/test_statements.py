"""Statements of the README, --help, documents and docstrings about commands, memory, extras and files are true."""

import ast
import importlib
import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib

import pytest

import unspool as us
from unspool.cli.commands import COMMANDS, command_parser
from unspool.engine.stored_weights import StoredMatrix

MEMORY_SHOWN = re.compile(
    r"^  (?P<name>\w+) +(?P<size>[\d.]+) M parameters(?:, --weights (?P<how>[\w-]+))? +(?P<peak>[\d.]+) GB$",
    re.MULTILINE,
)
MEMORY_ROW = re.compile(
    r'^\| `(?P<name>\w+)`(?:, `"(?P<how>[\w ]+)"`)? \| (?P<size>[\d.]+) M \| (?P<peak>[\d.]+) GB \|',
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def readme(root):
    return (root / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def guide(root):
    return (root / "docs/bring-your-model.md").read_text(encoding="utf-8")


def choices(parser):
    """The commands of a parser, each with its parser."""
    found = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
    return found[0] if found else {}


# Commands


def wrong_commands(page):
    """Commands that the table of a page lacks or invents."""
    rows = dict(re.findall(r"^\| `unspool (\w+)` \| (.*) \|$", page, re.MULTILINE))
    commands = choices(command_parser())
    found = sorted(set(commands) ^ set(rows))
    for name in set(commands) & set(rows):
        found += [f"{name} {sub}" for sub in choices(commands[name]) if f"`{sub}`" not in rows[name]]
    return found


def test_the_readme_lists_every_command(readme):
    assert set(choices(command_parser())) == set(COMMANDS)
    assert wrong_commands(readme) == []


def test_a_missing_command_is_found(readme):
    assert "lab" in wrong_commands(readme.replace("`unspool lab`", "`unspool lob`"))
    assert "lob" in wrong_commands(readme.replace("`unspool lab`", "`unspool lob`"))
    assert "diagnose heads" in wrong_commands(readme.replace("`heads`", ""))


# Memory


def memory(pattern, page):
    """(model, weights) → millions of parameters and gigabytes, as a page states them."""
    found = [match.groupdict() for match in pattern.finditer(page)]
    return {
        (it["name"], (it["how"] or "float32").replace("-", " ")): (float(it["size"]), float(it["peak"]))
        for it in found
    }


def stated(guide):
    """The memory stated by --help and by the guide, and the text of --help."""
    shown = choices(command_parser())["generate"].format_help()
    return memory(MEMORY_SHOWN, shown), memory(MEMORY_ROW, guide), shown


def kept_bytes(model):
    """Bytes of the weights of a model as they are in memory, and how many weights there are."""
    stored = [it for it in model.modules() if isinstance(it, StoredMatrix)]
    packed = sum(piece.packed.nbytes for it in stored for piece in it.pieces)
    size = sum(it.numel() * it.element_size() for it in model.parameters()) + packed
    return size, sum(it.numel() for it in model.parameters()) + sum(it.rows * it.columns for it in stored)


def test_help_and_guide_state_the_same_memory(guide):
    by_help, by_guide, _ = stated(guide)
    assert by_help == by_guide
    assert set(by_help) == {
        ("bible", "float32"),
        *(("smollm2", how) for how in ("float32", "int8", "stored")),
    }


@pytest.mark.parametrize("how", ["float32", "int8", "stored"])
def test_the_stated_memory_is_that_of_weights_and_libraries(guide, how):
    by_help, _, shown = stated(guide)
    (libraries,) = {float(re.search(r"(?i)about ([\d.]+) GB", page).group(1)) for page in (shown, guide)}
    size, count = kept_bytes(us.load("smollm2", weights=how))
    millions, peak = by_help["smollm2", how]
    assert round(count / 1e6) == millions
    assert peak == pytest.approx(libraries + size / 1e9, abs=0.02)
    a_parameter = {"float32": 4, "int8": 1.06}.get(how)
    if a_parameter is not None:
        assert size / count == pytest.approx(a_parameter, abs=0.006)
        assert re.search(rf"\b{a_parameter}(\s+bytes)?\s+in\s+(float32|int8)", shown)
        assert f"{a_parameter} bytes a parameter" in guide


PEAK = """
import sys
from unspool.cli import main
status = main(["generate", "Once upon a time", "--greedy", "--max-new-tokens", "1", *sys.argv[1:]])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak.split()[1], file=sys.stderr)
sys.exit(status)
"""


def peak_gigabytes(*options):
    """Peak memory of `unspool generate` in a new process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *options], env=environment, capture_output=True, text=True, check=True
    )
    return int(done.stderr.splitlines()[-1]) * 1024 / 1e9


def test_the_command_uses_the_stated_memory(guide):
    """Compared with a small model, because libraries differ between machines."""
    by_help, _, _ = stated(guide)
    small = min(peak_gigabytes("--model", "bible") for _ in range(2))  # the first run may compile kernels
    for how in ("float32", "int8", "stored"):
        options = ("--model", "smollm2", "--weights", how.replace(" ", "-"))
        expected = by_help["smollm2", how][1] - by_help["bible", "float32"][1]
        more = peak_gigabytes(*options) - small
        if more > expected + 0.08:  # the first run may have compiled kernels, which takes memory
            more = peak_gigabytes(*options) - small
        assert more == pytest.approx(expected, abs=0.08), how


# Installing


def test_documents_install_from_an_index_only_once_published(root):
    pages = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]
    command = re.compile(r"^.*pip install [^\n`]*\bunspool\b.*$", re.MULTILINE)
    lines = [line for page in pages for line in command.findall(page.read_text(encoding="utf-8"))]
    assert [line for line in lines if "once published" not in line] == []


def test_every_extra_in_the_documents_exists(root):
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "src").rglob("*.py")]
    named = re.compile(r"unspool\[([\w,-]+)\]|pip install -e \"\.\[([\w,-]+)\]\"|\bextra `([\w-]+)`")
    found = {
        extra
        for page in pages
        for groups in named.findall(page.read_text(encoding="utf-8"))
        for extra in ",".join(groups).split(",")
        if extra and extra != "extra"
    }
    assert {"serve", "grammar"} <= found <= set(extras)


# Docstrings and comments

FILE = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)+[\w.-]+\.(?:py|md|toml|js|bib))\b")
MODULE = re.compile(r"\bunspool(?:\.\w+)+|(?<=`)(?:[a-z_]+\.)+\w+(?=`)")


def prose(source):
    """The comments and the docstrings of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = [token.string for token in tokens if token.type == tokenize.COMMENT]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                found.append(text)
    return found


def resolves(name):
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def dead(text, root, folder):
    """Files and modules of this package that a text names and that do not exist."""
    ours = root / "src" / "unspool"
    places = (root, root / "docs", ours, root / "tests", folder)
    found = [name for name in FILE.findall(text) if not any((place / name).exists() for place in places)]
    for name in MODULE.findall(text):
        first = name.split(".")[0]
        if first != "unspool" and not ((ours / first).is_dir() or (ours / f"{first}.py").is_file()):
            continue
        if name != "unspool.plugins" and not resolves(name if first == "unspool" else f"unspool.{name}"):
            found.append(name)
    return found


def test_docstrings_name_existing_files_and_modules(root):
    found = {}
    for path in sorted((root / "src").rglob("*.py")):
        for text in prose(path.read_text(encoding="utf-8")):
            if wrong := dead(text, root, path.parent):
                found.setdefault(path.name, []).extend(wrong)
    assert found == {}


def test_a_dead_reference_is_found(root):
    text = "as in docs/nowhere.md, `nn.compiled.engine` and unspool.decode.nothing; `self.x`, docs/lab.md, `models.loading`"
    assert dead(text, root, root) == ["docs/nowhere.md", "nn.compiled.engine", "unspool.decode.nothing"]
