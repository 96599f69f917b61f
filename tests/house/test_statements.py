"""What the README, --help, documents and docstrings say of commands, memory, extras and modules is what there is."""

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
from unspool.cli.verbs import VERBS, command_parser

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


def choices(parser):
    """The commands of a parser, each with its parser."""
    found = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
    return found[0] if found else {}


# Commands


def wrong_commands(page):
    """Commands that the table of a page leaves out or makes up."""
    rows = dict(re.findall(r"^\| `unspool (\w+)` \| (.*) \|$", page, re.MULTILINE))
    commands = choices(command_parser())
    found = sorted(set(commands) ^ set(rows))
    for name in set(commands) & set(rows):
        found += [f"{name} {sub}" for sub in choices(commands[name]) if f"`{sub}`" not in rows[name]]
    return found


def test_the_readme_lists_every_command(readme):
    assert set(choices(command_parser())) == set(VERBS)
    assert wrong_commands(readme) == []


def test_a_command_that_the_readme_lacks_is_noticed(readme):
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


def stated(readme):
    """What --help says of memory, what the README says, and --help itself."""
    shown = choices(command_parser())["generate"].format_help()
    return memory(MEMORY_SHOWN, shown), memory(MEMORY_ROW, readme), shown


def kept_bytes(model):
    """Bytes of the weights of a model as they are in memory, and how many weights there are."""
    stored = {id(it): it for it in model.modules() if hasattr(it, "nbytes")}.values()
    size = sum(it.numel() * it.element_size() for it in model.parameters()) + sum(it.nbytes for it in stored)
    return size, sum(it.numel() for it in model.parameters()) + sum(it.rows * it.columns for it in stored)


def test_help_and_readme_state_the_same_memory(readme):
    by_help, by_readme, _ = stated(readme)
    assert by_help == by_readme
    assert set(by_help) == {
        ("bible", "float32"),
        *(("smollm2", how) for how in ("float32", "int8", "stored")),
    }


@pytest.mark.parametrize("how", ["float32", "int8", "stored"])
def test_the_memory_that_is_stated_is_that_of_the_weights_and_of_the_libraries(readme, how):
    by_help, _, shown = stated(readme)
    (libraries,) = {float(re.search(r"About ([\d.]+) GB", page).group(1)) for page in (shown, readme)}
    size, count = kept_bytes(us.load("smollm2", weights=how))
    millions, peak = by_help["smollm2", how]
    assert round(count / 1e6) == millions
    assert peak == pytest.approx(libraries + size / 1e9, abs=0.02)
    a_parameter = {"float32": 4, "int8": 1.06}.get(how)
    if a_parameter is not None:
        assert size / count == pytest.approx(a_parameter, abs=0.006)
        assert re.search(rf"\b{a_parameter}( bytes a parameter| in\s+int8)", shown)
        assert f"{a_parameter} bytes a parameter" in readme


PEAK = """
import sys
from unspool.cli import main
status = main(["generate", "Once upon a time", "--greedy", "--max-new-tokens", "1", *sys.argv[1:]])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak.split()[1], file=sys.stderr)
sys.exit(status)
"""


def peak_gigabytes(*options):
    """Peak memory of `unspool generate`, in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *options], env=environment, capture_output=True, text=True, check=True
    )
    return int(done.stderr.splitlines()[-1]) * 1024 / 1e9


def test_the_command_takes_the_memory_that_is_stated(readme):
    """Beyond that of a small model, for libraries differ between machines."""
    by_help, _, _ = stated(readme)
    for how in ("float32", "int8", "stored"):
        asked = ("--model", "smollm2", "--weights", how.replace(" ", "-"))
        peak_gigabytes(*asked)  # kernels are compiled now, which takes memory
        more = peak_gigabytes(*asked) - peak_gigabytes("--model", "bible")
        assert more == pytest.approx(by_help["smollm2", how][1] - by_help["bible", "float32"][1], abs=0.08), (
            how
        )


# Installing


def test_no_document_installs_unspool_from_an_index(root):
    pages = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]
    asks = re.compile(r"pip install [^\n`]*\bunspool\b")
    assert [page.name for page in pages if asks.search(page.read_text(encoding="utf-8"))] == []


def test_every_extra_that_is_named_exists(root):
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
    """The files and the modules of ours that a text in this folder names, and that are not there."""
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


def test_docstrings_name_files_and_modules_that_exist(root):
    found = {}
    for path in sorted((root / "src").rglob("*.py")):
        for text in prose(path.read_text(encoding="utf-8")):
            if wrong := dead(text, root, path.parent):
                found.setdefault(path.name, []).extend(wrong)
    assert found == {}


def test_a_dead_reference_is_noticed(root):
    text = "as in docs/nowhere.md, `nn.compiled.engine` and unspool.decode.nothing; `self.x`, docs/lab.md, `models.load`"
    assert dead(text, root, root) == ["docs/nowhere.md", "nn.compiled.engine", "unspool.decode.nothing"]
