"""A tokenizer of transformers as a model's text, for all that is built on the tokenizers library."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer

from unspool.adapters.huggingface.special_tokens import ending_ids
from unspool.text.codec import Codec


def text_of(tokenizer: Any, model: Any) -> Codec:
    """The codec that reads and writes as the tokenizer does; texts end where it or the model says."""
    inner = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(inner, Tokenizer):
        raise TypeError(
            f"the tokenizer is {tokenizer!r:.80}, but must be one of the tokenizers library, the only kind "
            "that is read: leave it out, give token ids, and decode what comes (out.tokens) with it"
        )
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    template = getattr(tokenizer, "chat_template", None)
    return Codec(
        Tokenizer.from_str(inner.to_str()),  # a copy: ours switches truncation and padding off
        bos_id=bos,
        eos_ids=ending_ids(model) | (frozenset() if eos is None else {eos}),
        add_bos=bos is not None and tokenizer("").input_ids[:1] == [bos],
        chat_template=template if isinstance(template, str) else None,
        bos_token=tokenizer.bos_token or "",
        eos_token=tokenizer.eos_token or "",
    )
