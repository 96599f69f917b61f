"""The codec of a Hugging Face model folder, from the files that say how its tokenizer is used.

    tokenizer.json            the tokenizer itself
    tokenizer_config.json     which tokens begin and end a text; the chat template
    chat_template.jinja       the chat template of newer models; it comes before the one above
    generation_config.json    the ids that end a text; config.json where it is silent

A text ends at any token that one of these files calls its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from unspool.io import read_bounded
from unspool.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer, id_to_token, read_json_object
from unspool.tokenization.tokenizer_file import library_errors, read_tokenizer


def tokenizer_from_folder(path: str | Path) -> Tokenizer | None:
    """The folder's codec; None where it has no tokenizer.json."""
    folder = Path(path)
    if not (folder / TOKENIZER_FILE).is_file():
        return None
    tokenizer = read_tokenizer(folder / TOKENIZER_FILE)
    config = _optional(folder / "tokenizer_config.json")
    model = _model_settings(folder)

    bos_token, eos_token = (_spelling(config.get(key)) for key in ("bos_token", "eos_token"))
    bos_id = _special(tokenizer, bos_token)
    if bos_id is None and bos_token == "":
        bos_id = _known(tokenizer, model.get("bos_token_id"))
    named = _special(tokenizer, eos_token)
    return Tokenizer(
        tokenizer,
        bos_id=bos_id,
        eos_ids=_ids(model.get("eos_token_id")) | ({named} if named is not None else set()),
        add_bos=bos_id is not None and _adds_bos(tokenizer, config, bos_id),
        chat_template=_chat_template(folder, config),
        bos_token=bos_token,
        eos_token=eos_token,
    )


def eos_ids_from_folder(folder: Path) -> frozenset[int]:
    """The end-of-text tokens that the model's settings name, for a folder without a tokenizer."""
    return _ids(_model_settings(folder).get("eos_token_id"))


def _model_settings(folder: Path) -> dict[str, Any]:
    stated = _optional(folder / "generation_config.json")
    return _optional(folder / "config.json") | {key: it for key, it in stated.items() if it is not None}


def _optional(path: Path) -> dict[str, Any]:
    return read_json_object(path) if path.is_file() else {}


def _spelling(token: Any) -> str:
    """A token is written as a string or as an object that holds it."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else ""


def _special(tokenizer: tokenizers.Tokenizer, token: str) -> int | None:
    """The id of a token that begins or ends texts; from now on it is read whole and never shown."""
    found: int | None = tokenizer.token_to_id(token) if token else None
    if found is not None:
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
    return found


def _known(tokenizer: tokenizers.Tokenizer, token: Any) -> int | None:
    known = isinstance(token, int) and id_to_token(tokenizer, token) is not None
    return token if known else None


def _ids(value: Any) -> frozenset[int]:
    """One id, several, or none."""
    listed = value if isinstance(value, list) else [value]
    return frozenset(token for token in listed if isinstance(token, int) and not isinstance(token, bool))


def _adds_bos(tokenizer: tokenizers.Tokenizer, config: Mapping[str, Any], bos_id: int) -> bool:
    """What the config says; where it is silent, what the tokenizer's own post-processor does."""
    said = config.get("add_bos_token")
    if isinstance(said, bool):
        return said
    with library_errors("the tokenizer's post-processor"):
        return bool(tokenizer.encode("").ids[:1] == [bos_id])


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The template's own file, or the config's entry: one template, or several under names."""
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
