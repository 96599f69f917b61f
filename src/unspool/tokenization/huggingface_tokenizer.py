"""Tokenizer of a Hugging Face model folder.

    tokenizer.json            the tokenizer itself
    tokenizer_config.json     BOS and EOS tokens; the chat template
    chat_template.jinja       the chat template of newer models; overrides the one above
    generation_config.json    EOS ids; config.json if it has none

A text ends at any token that one of these files names as EOS.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from unspool.io import read_bounded, read_json_object
from unspool.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer, id_to_token
from unspool.tokenization.tokenizer_file import library_errors, read_tokenizer


def tokenizer_from_folder(path: str | Path) -> Tokenizer | None:
    """The tokenizer of a folder, or None without a tokenizer.json."""
    folder = Path(path)
    if not (folder / TOKENIZER_FILE).is_file():
        return None
    backend = read_tokenizer(folder / TOKENIZER_FILE)
    config = _read_optional(folder / "tokenizer_config.json")
    model_config = _model_config(folder)

    # A token is a string, or an object with the string as `content`.
    named = [config.get("bos_token"), config.get("eos_token")]
    contents = (token.get("content") if isinstance(token, Mapping) else token for token in named)
    bos_token, eos_token = (content if isinstance(content, str) else "" for content in contents)
    bos_id = _special_token_id(backend, bos_token)
    if bos_id is None and bos_token == "":
        configured = model_config.get("bos_token_id")
        if isinstance(configured, int) and id_to_token(backend, configured) is not None:
            bos_id = configured
    eos_id = _special_token_id(backend, eos_token)
    return Tokenizer(
        backend,
        bos_id=bos_id,
        eos_ids=as_token_ids(model_config.get("eos_token_id")) | ({eos_id} if eos_id is not None else set()),
        add_bos=bos_id is not None and _adds_bos(backend, config, bos_id),
        chat_template=_chat_template(folder, config),
        bos_token=bos_token,
        eos_token=eos_token,
    )


def eos_ids_from_folder(folder: Path) -> frozenset[int]:
    """The EOS ids of the model's configuration, for a folder without a tokenizer."""
    return as_token_ids(_model_config(folder).get("eos_token_id"))


def _model_config(folder: Path) -> dict[str, Any]:
    generation = _read_optional(folder / "generation_config.json")
    stated = {key: value for key, value in generation.items() if value is not None}
    return _read_optional(folder / "config.json") | stated


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json_object(path) if path.is_file() else {}


def _special_token_id(backend: tokenizers.Tokenizer, token: str) -> int | None:
    """The id of BOS or EOS; registers the token as special, so that it is never split or shown."""
    token_id: int | None = backend.token_to_id(token) if token else None
    if token_id is not None:
        backend.add_special_tokens([AddedToken(token, special=True, normalized=False)])
    return token_id


def as_token_ids(value: Any) -> frozenset[int]:
    """One token id, a list of them, or None, as a set."""
    listed = value if isinstance(value, list | tuple) else [value]
    return frozenset(token for token in listed if isinstance(token, int) and not isinstance(token, bool))


def _adds_bos(backend: tokenizers.Tokenizer, config: Mapping[str, Any], bos_id: int) -> bool:
    """The config's `add_bos_token`, or the behaviour of the post-processor if it is absent."""
    add_bos = config.get("add_bos_token")
    if isinstance(add_bos, bool):
        return add_bos
    with library_errors("the tokenizer's post-processor"):
        return bool(backend.encode("").ids[:1] == [bos_id])


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The template file, or the config entry: one template, or several with names."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return read_bounded(file).decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{file} is not UTF-8: {error}") from None
    entry = config.get("chat_template")
    if not isinstance(entry, list):
        return entry if isinstance(entry, str) else None
    named = {each.get("name"): each.get("template") for each in entry if isinstance(each, Mapping)}
    return named.get("default", next(iter(named.values()), None))
