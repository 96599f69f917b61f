"""A model as a folder of Hugging Face's: what their `save_pretrained` writes, without their package.

config.json   model.safetensors   generation_config.json   tokenizer.json   tokenizer_config.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from unspool.models.load.safetensors_files import WEIGHTS, write_safetensors
from unspool.models.load.seq2seq_twin import twin_of
from unspool.text.codec import TOKENIZER_FILE, Codec, spelled

ENDS = ("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id")
"""Settings that their `generate` wants to have."""


def write_huggingface(model: Any, folder: Path) -> None:
    """The files of a Hugging Face folder, into a folder that nobody reads yet."""
    twin = twin_of(model)
    dtype = str(next(iter(twin.weights.values())).dtype).removeprefix("torch.")
    said = {"architectures": [twin.architecture], "model_type": twin.family, "dtype": dtype, **twin.config}
    _write(folder / "config.json", said)
    ends = {name: twin.config.get(name) for name in ENDS}
    _write(folder / "generation_config.json", {name: it for name, it in ends.items() if it is not None})
    # Each with memory of its own: slices of one matrix would be written as the whole of it.
    weights = {name: it.cpu().clone().contiguous() for name, it in twin.weights.items()}
    write_safetensors(weights, folder / WEIGHTS, {"format": "pt"})
    if model.text is not None:
        _write_tokenizer(model.text, folder, model.context, answers=model.answers)


def _write_tokenizer(text: Any, folder: Path, context: int | None, *, answers: bool) -> None:
    if not isinstance(text, Codec):
        raise TypeError(
            f"only a Codec can be saved with a model, not a {type(text).__name__}: set model.text to one"
        )
    if text.right_to_left:
        raise ValueError(
            "the model says texts from right to left, and Hugging Face's tokenizers know no such order: "
            'save it in the format "unspool"'
        )
    eos = min(text.eos_ids, default=None)
    named = text.token_id(text.eos_token)
    written = _with_ends(text, named if answers and named is not None else eos if answers else None)
    (folder / TOKENIZER_FILE).write_text(written.to_str(pretty=False), encoding="utf-8")
    said = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None if text.bos_id is None else spelled(text.tokenizer, text.bos_id),
        "eos_token": text.eos_token if named is not None or eos is None else spelled(text.tokenizer, eos),
        "chat_template": text.chat_template,
        "add_bos_token": text.add_bos,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    _write(folder / "tokenizer_config.json", {name: it for name, it in said.items() if it})


def _with_ends(text: Codec, eos: int | None) -> Tokenizer:
    """The tokenizer with a post-processor that writes what the model was trained with.

    A language model's texts begin with BOS if the codec says so; an encoder–decoder's sources end with EOS.
    """
    begin = [text.bos_id] if text.add_bos and text.bos_id is not None else []
    end = [] if eos is None else [eos]
    if text.tokenizer.encode("").ids == [*begin, *end]:
        return text.tokenizer
    names = {token: str(spelled(text.tokenizer, token)) for token in (*begin, *end)}
    first, last = ([names[token] for token in side] for side in (begin, end))
    made = Tokenizer.from_str(text.tokenizer.to_str())
    made.post_processor = TemplateProcessing(
        single=[*first, "$A", *last],
        pair=[*first, "$A", *last, *(f"{name}:1" for name in first), "$B:1", *(f"{name}:1" for name in last)],
        special_tokens=[(name, token) for token, name in names.items()],
    )
    return made


def _write(path: Path, said: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
