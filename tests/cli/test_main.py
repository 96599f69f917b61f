import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest

import unspool as us
from unspool.cli import main
from unspool.cli.output import exit_during_imports


@pytest.mark.parametrize("argv", [[], ["conjure"], ["generate", "--nope"], ["generate", "a", "--n", "0"]])
def test_bad_arguments_are_one_line_and_status_2(unspool, argv):
    status, out, err = unspool(*argv)
    assert (status, out) == (2, "")
    assert err.startswith("unspool: ")
    assert err.count("\n") == 1
    assert "--help" in err


def test_flags_are_never_abbreviated(unspool):
    status, _, err = unspool("generate", "a", "--temp", "0.5")
    assert status == 2
    assert "--temp" in err


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("no such thing; try another"), 2, "unspool: no such thing; try another\n"),
        (
            FileNotFoundError(2, "No such file or directory", "x.gguf"),
            2,
            "unspool: x.gguf: No such file or directory\n",
        ),
        (FileNotFoundError("x.gguf is missing"), 2, "unspool: x.gguf is missing\n"),
        (ZeroDivisionError("oh"), 1, "unspool: ZeroDivisionError: oh (--debug shows the traceback)\n"),
        (KeyboardInterrupt(), 130, "unspool: interrupted\n"),
    ],
    ids=repr,
)
def test_errors_become_one_line_and_a_status(unspool, replace_run, error, status, line):
    def run(args):
        raise error

    replace_run("generate", run)
    assert unspool("generate", "a") == (status, "", line)


def test_debug_shows_the_traceback(unspool, replace_run):
    def run(args):
        raise ValueError("oh")

    replace_run("generate", run)
    status, _, err = unspool("generate", "a", "--debug")
    assert status == 2
    assert "Traceback" in err
    assert err.endswith("unspool: oh\n")


def test_an_error_before_the_model_is_loaded_does_not_load_it(unspool, loaded):
    status, _, err = unspool("generate", "a", "--decoder", "Sampel(TopP(0.9))")
    assert status == 2
    assert "Sampel" in err
    assert "Sample" in err
    assert loaded == []


# The same command in a process of its own: signals and pipes are the operating system's.
SCRIPT = """
import signal, sys
import unspool as us
from dataclasses import replace
from unspool.cli.commands import COMMANDS
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs behind it
def run(args):
    {body}
    return 0
COMMANDS["generate"] = replace(COMMANDS["generate"], run=run)
sys.exit(__import__("unspool.cli").cli.main(["generate", "a"]))
"""


def start(body, **pipes):
    return subprocess.Popen([sys.executable, "-c", SCRIPT.format(body=body)], stderr=subprocess.PIPE, **pipes)


def test_a_closed_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    process = start('[print("x" * 1000, flush=True) for _ in range(1000)]', stdout=writer)
    os.close(writer)
    assert process.communicate()[1] == b""
    assert process.returncode == 141


def test_ctrl_c_leaves_with_130():
    process = start('print("ready", flush=True); __import__("time").sleep(60)', stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err == b"unspool: interrupted\n"


# Ctrl-C in the middle of an import: the module that Python looks for raises the signal itself, and makes of
# the exception what numpy makes of it.
IMPORTING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting:
    def find_spec(name, path=None, target=None):
        if name == {name!r}:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise {becomes}
from unspool.cli import main
sys.meta_path.insert(0, Interrupting)
sys.exit(main(["generate", "a"]))
"""


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("unspool.cli.output", "KeyboardInterrupt"),
        ("unspool.cli.generate", "KeyboardInterrupt"),
        ("torch", 'AttributeError("half there")'),
    ],
)
def test_ctrl_c_during_an_import(name, becomes):
    script = IMPORTING.format(name=name, becomes=becomes)
    process = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert (process.returncode, process.stderr) == (130, b"unspool: interrupted\n")


def test_the_module_is_the_command():
    process = subprocess.run(
        [sys.executable, "-m", "unspool", "--help"], capture_output=True, text=True, check=True
    )
    assert process.stdout.startswith("usage: unspool ")


def test_main_returns_and_does_not_exit():
    assert main(["generate", "--help"]) == 0
    assert us.__version__


EVIL = "a\x1b[2J\x9b31m\u202eb\r\nunspool: wrote report.html"


@pytest.mark.parametrize(
    "argv",
    [
        ["generate", "Hi", "--model", EVIL],
        ["generate", "Hi", "--decoder", f"Sample(TopQ('{EVIL}'))"],
        ["generate", "Hi", f"--{EVIL}"],
        [EVIL],
        ["train", "{folder}/recipe.toml", "--output", "{folder}/run"],
        ["generate", "--prompts", "{folder}/prompts.jsonl", "--model", "bible"],
        ["generate", "Hi", "--model", "{folder}/model"],
        ["generate", "Hi", "--model", EVIL, "--debug"],
    ],
)
def test_no_control_character_of_files_and_arguments_reaches_the_terminal(unspool, tmp_path, argv):
    (tmp_path / "recipe.toml").write_text(f'["{EVIL[:10]}\\u001b"]\n', encoding="utf-8", newline="")
    (tmp_path / "prompts.jsonl").write_text('["\u202e\x9b"]\n', encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text('{"model_type": "x\\u001b[2J\u202e"}', encoding="utf-8")
    status, out, err = unspool(*(it.replace("{folder}", str(tmp_path)) for it in argv))
    assert (status, out) == (2, "")
    assert not set(err) & set("\x1b\x9b\r\u202e\x7f"), err
    assert "--debug" in argv or err.count("\n") == 1


def test_a_warning_is_one_line_of_the_command(unspool, replace_run):
    replace_run("compile", lambda args: warnings.warn(EVIL, stacklevel=1))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        _, _, err = unspool("compile")
    assert err.startswith("unspool: warning: a")
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_an_error_without_a_message_names_its_kind(unspool, replace_run):
    def fail(args):
        raise MemoryError

    replace_run("compile", fail)
    assert unspool("compile") == (2, "", "unspool: MemoryError (--debug shows the traceback)\n")


DEEP = {
    "lists": "x = " + "[" * 5000 + "]" * 5000,
    "tables": "[train]\nx." + "a." * 5000 + "b = 1",
}


@pytest.mark.parametrize("name", DEEP)
def test_a_deeply_nested_recipe_is_refused_in_one_line(unspool, tmp_path, name):
    (tmp_path / "deep.toml").write_text(DEEP[name], encoding="utf-8")
    for how in (["--output", tmp_path / "run"], ["--dry-run"]):
        status, _, err = unspool("train", tmp_path / "deep.toml", *how)
        assert (status, err.count("\n")) == (2, 1)
        assert "nested too deeply" in err


def test_a_deeply_nested_setting_and_decoder_are_refused_in_one_line(unspool, tmp_path):
    (tmp_path / "recipe.toml").write_text("seed = 1\n", encoding="utf-8")
    status, _, err = unspool(
        "train", tmp_path / "recipe.toml", "--dry-run", "--set", "train.lr=" + "[" * 5000
    )
    assert (status, err.count("\n")) == (2, 1)
    status, _, err = unspool("compare", "Hi", "--model", "bible", "--decoder", "Sample(" * 5000)
    assert (status, err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "argv",
    [
        ["generate", "--model", "bible", "--prompts", "/dev/zero"],
        ["generate", "Hi", "--model", "bible", "--json-schema", "/dev/zero"],
        ["evaluate", "texts", "/dev/zero"],
        ["train", "/dev/zero", "--output", "run"],
    ],
)
def test_a_device_without_an_end_is_refused_in_one_line(unspool, monkeypatch, argv):
    monkeypatch.setattr("unspool.data.records.MAX_TEXT_BYTES", 1 << 20)
    status, out, err = unspool(*argv)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "/dev/zero" in err


def test_more_answers_than_anybody_can_wait_for_are_refused(unspool):
    status, out, err = unspool("generate", "Hi", "--model", "bible", "--n", str(10**12))
    assert (status, out) == (2, "")
    assert err == "unspool: n is 1000000000000, which is more than 1,000,000.\n"


def test_a_config_of_many_gigabytes_is_not_read(unspool, tmp_path):
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(9 << 30)
    status, _, err = unspool("generate", "Hi", "--model", tmp_path)
    assert (status, err.count("\n")) == (2, 1)
    assert "config.json has more than 64 MiB" in err


@pytest.fixture(autouse=True)
def handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_outside_an_import_it_is_pythons_own():
    with exit_during_imports(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_inside_an_import_the_process_ends(monkeypatch, tmp_path, capsys):
    class LeftError(Exception):
        pass

    def leave(status):
        raise LeftError(status)

    monkeypatch.setattr("unspool.cli.output.os._exit", leave)
    (tmp_path / "interrupting_module.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with exit_during_imports(), pytest.raises(LeftError, match="130"):
        import interrupting_module  # noqa: F401
    assert capsys.readouterr().err == "unspool: interrupted\n"


def test_a_signal_that_is_ignored_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with exit_during_imports():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.raise_signal(signal.SIGINT)


def test_a_thread_runs_commands_too():
    ran = []

    def run():
        with exit_during_imports():
            ran.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ran == [signal.default_int_handler]
