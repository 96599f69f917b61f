"""Chat templates: render messages as the prompt string that the model was trained on.

The Jinja template of a model file is a program of unknown origin. It runs in a helper process with limits on
time and memory (`template_sandbox`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unspool.tokenization.helper_process import HelperProcess

TEMPLATE_PROCESS = HelperProcess(Path(__file__).with_name("template_sandbox.py"))
"""Runs the sandbox as a script, so that this process does not import jinja2."""
MAX_TEMPLATE_CHARS = 200_000
"""The longest templates in use have about a tenth of this."""
MAX_RENDERED_CHARS = 1_000_000
ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython", "model")
"""Roles that every template accepts; others are accepted if the template names them."""
NESTED = ("tool_calls",)
"""Fields of a message that are not strings."""


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    bos_token: str = "",
    eos_token: str = "",
    add_generation_prompt: bool = True,
    seconds: float = 2.0,
) -> str:
    """The messages as one string, ready for the model's reply.

    `tools` are functions in OpenAI's format, and `variables` other settings of the template, such as
    `enable_thinking`.
    TimeoutError after `seconds`. ValueError if the template fails, rejects the messages or writes more than
    MAX_RENDERED_CHARS, or if a role is unknown.
    """
    if len(template) > MAX_TEMPLATE_CHARS:
        raise ValueError(
            f"the chat template has {len(template):,} characters; the limit is {MAX_TEMPLATE_CHARS:,}"
        )
    own = {
        "messages": _check_messages(messages, template),
        "tools": None if tools is None else list(tools),
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        "bos_token": bos_token,
        "eos_token": eos_token,
    }
    taken = next((name for name in variables or () if name in own), None)
    if taken is not None:
        raise ValueError(f"the variable {taken!r} of the chat template cannot be set")
    try:
        settings = {**(variables or {}), **own}
        reply = TEMPLATE_PROCESS.request(
            seconds, template=template, variables=settings, size=MAX_RENDERED_CHARS
        )
    except TimeoutError:
        raise TimeoutError(
            f"the chat template did not finish within {seconds:g} s; write the prompt by hand"
        ) from None
    if "syntax" in reply:
        raise ValueError(f"the chat template is not valid Jinja: {reply['syntax']}")
    if "error" in reply:
        raise ValueError(f"the chat template failed on these messages: {reply['error']}")
    return reply["text"]


def _check_messages(messages: Sequence[Mapping[str, Any]], template: str) -> list[dict[str, Any]]:
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
            if not isinstance(value, str) and key not in NESTED:
                raise TypeError(f"message {at}: {key!r} is a {type(value).__name__}; {expected}")
        # Templates write the role between control tokens, or into one.
        role = message["role"]
        is_named = role.isidentifier() and (f"'{role}'" in template or f'"{role}"' in template)
        if role not in ROLES and not is_named:
            known = ", ".join(ROLES)
            raise ValueError(f"message {at} has the unknown role {role!r:.60}: choose from {known}")
    return [dict(message) for message in messages]
