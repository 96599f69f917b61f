"""Writes a conversation as the one string that a model was taught to answer, by the template in its file.

The template is a program of unknown origin: it runs in a sandbox that bounds its time and its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from jinja2 import Template
from jinja2.exceptions import TemplateSyntaxError

from unspool.text.ledger import OutOfTimeError
from unspool.text.sandbox import ChatSandbox

LONGEST_TEMPLATE = 200_000
"""Characters. The longest templates in use have about a tenth of this."""


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
    than `size` characters.
    """
    if len(template) > LONGEST_TEMPLATE:
        raise ValueError(
            f"the chat template has {len(template):,} characters, more than the {LONGEST_TEMPLATE:,} allowed"
        )
    variables = {
        "messages": _checked(messages),
        "tools": None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        "bos_token": bos_token,
        "eos_token": eos_token,
    }
    try:
        sandbox, compiled = _compiled(template, size)
        return sandbox.write(compiled, variables, seconds)
    except TemplateSyntaxError as error:
        reason = f"line {error.lineno}: {error.message}"
        raise ValueError(f"the chat template is not valid Jinja: {reason}") from error
    except OutOfTimeError:
        raise TimeoutError(
            f"the chat template did not end within {seconds:g} s and was stopped; write the prompt by hand"
        ) from None
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"the chat template could not write these messages: {reason}") from error


def _checked(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
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
    return [dict(message) for message in messages]


@lru_cache(maxsize=8)
def _compiled(template: str, size: int) -> tuple[ChatSandbox, Template]:
    sandbox = ChatSandbox(size)
    return sandbox, sandbox.from_string(template)
