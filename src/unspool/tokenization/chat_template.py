"""Writes a conversation as the one string that a model was taught to answer, by the template in its file.

The template is a program of unknown origin: it runs in a process of its own, with limits on time and memory.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

SANDBOX_SCRIPT = Path(__file__).with_name("template_sandbox.py")
"""Run, and not imported: this process has no need of jinja2."""


class HelperProcess:
    """One process that runs a script, and the way to it.

    Asks a process that works on files of unknown origin: it is started when it is first needed, and kept.

    `sandbox` renders chat templates, `tokenizer_probe` tries tokenizers. After work that had to be stopped
    there is a new process. Each is asked by one thread at a time.
    """

    def __init__(self, script: Path = SANDBOX_SCRIPT) -> None:
        self.script = script
        self.forget()
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """As if none had been started: after a fork, it is the parent's."""
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, seconds: float, **asked: Any) -> Mapping[str, str]:
        """What the script answers; TimeoutError if that takes longer than `seconds`."""
        with self._lock:
            try:
                answer = self._answer(json.dumps({"seconds": seconds, **asked}).encode() + b"\n")
            except BaseException:  # a late answer would be taken for the next one
                self._stop()
                raise
            if answer.startswith(b"{"):
                found: Mapping[str, str] = json.loads(answer)
                return found
            status = self._stop()
        if answer.startswith(b"Timeout"):
            raise TimeoutError
        return {"error": f"the process that worked on it has died (exit status {status})"}

    def _answer(self, line: bytes) -> bytes:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            return process.stdout.readline()
        except BrokenPipeError:
            return b""

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(self.script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # It finds the same packages, and starts no threads of its own.
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    "TOKENIZERS_PARALLELISM": "false",
                },
            )
        return self._process

    def _stop(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate()
        return process.returncode

    def close(self) -> None:
        """End the process; asked again, there is a new one."""
        with self._lock:
            self._stop()


TEMPLATE_PROCESS = HelperProcess()
"""The one that this Python program asks for chat templates."""


MAX_TEMPLATE_CHARS = 200_000
"""Characters. The longest templates in use have about a tenth of this."""
MAX_SECONDS = 86_400
"""Seconds."""
ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython", "model")
"""Roles that every template may be given; others if the template names them."""


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, str]],
    *,
    bos_token: str = "",
    eos_token: str = "",
    add_generation_prompt: bool = True,
    seconds: float = 2.0,
    size: int = 1_000_000,
) -> str:
    """The messages as one string, ending where the answer begins.

    TimeoutError after `seconds`; ValueError where the template fails, refuses the messages or writes more
    than `size` characters, or if a role is unknown.
    """
    if len(template) > MAX_TEMPLATE_CHARS:
        raise ValueError(
            f"the chat template has {len(template):,} characters; the limit is {MAX_TEMPLATE_CHARS:,}"
        )
    if not 0.0 < seconds < MAX_SECONDS:
        raise ValueError(f"seconds is {seconds}; it must be above 0 and below {MAX_SECONDS:,}")
    variables = {
        "messages": _check_messages(messages, template),
        "tools": None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        "bos_token": bos_token,
        "eos_token": eos_token,
    }
    try:
        answer = TEMPLATE_PROCESS.ask(seconds, template=template, variables=variables, size=size)
    except TimeoutError:
        raise TimeoutError(
            f"the chat template did not end within {seconds:g} s and was stopped; write the prompt by hand"
        ) from None
    if "syntax" in answer:
        raise ValueError(f"the chat template is not valid Jinja: {answer['syntax']}")
    if "error" in answer:
        raise ValueError(f"the chat template could not write these messages: {answer['error']}")
    return answer["text"]


def _check_messages(messages: Sequence[Mapping[str, str]], template: str) -> list[dict[str, str]]:
    expected = 'expected a list such as [{"role": "user", "content": "Hello"}], all strings'
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise TypeError(f"messages is a {type(messages).__name__}; {expected}")
    if not messages:
        raise ValueError(f"messages is empty; {expected}")
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(f"message {at} is a {type(message).__name__}; {expected}")
        for key in ("role", "content"):
            if key not in message:
                raise ValueError(f"message {at} has no {key!r}; {expected}")
        for key, value in message.items():
            if not isinstance(value, str):
                raise TypeError(f"message {at}: {key!r} is a {type(value).__name__}; {expected}")
        _check_role(message["role"], at, template)
    return [dict(message) for message in messages]


def _check_role(role: str, at: int, template: str) -> None:
    """Templates write the role between control tokens, or into one: it must not be any text."""
    named = role.isidentifier() and (f"'{role}'" in template or f'"{role}"' in template)
    if role not in ROLES and not named:
        known = ", ".join(ROLES)
        raise ValueError(f"message {at} has the unknown role {role!r:.60}: choose from {known}")
