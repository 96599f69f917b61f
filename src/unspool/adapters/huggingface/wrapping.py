"""Any causal or encoder–decoder model of transformers as a model of ours: every search runs on it.

model = us.from_huggingface(AutoModelForCausalLM.from_pretrained(…), AutoTokenizer.from_pretrained(…))
us.generate(model, "Once upon a time", us.Beam(5))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool.adapters.huggingface.answering_model import AnsweringModel
from unspool.adapters.huggingface.causal_model import CausalModel
from unspool.adapters.huggingface.tokenizer_text import text_of
from unspool.adapters.needed_packages import TRANSFORMERS

if TYPE_CHECKING:
    from unspool.protocols import Text


OURS = ("encode", "decode", "watch", "eos_ids")
"""What a text of ours has."""


def from_huggingface(model: Any, tokenizer: Any = None) -> CausalModel | AnsweringModel:
    """A StepModel that runs a model of transformers; nothing of it is copied or changed.

    `tokenizer` is theirs, or the text of another model of ours. Without one the model speaks token ids, and a
    text ends at the `eos_token_id` of their generation_config or config.
    """
    library = TRANSFORMERS.imported("from_huggingface")
    if not isinstance(model, library.PreTrainedModel) or not model.can_generate():
        raise TypeError(
            f"{model!r:.80} is no model of transformers that generates text: give one such as "
            "AutoModelForCausalLM or AutoModelForSeq2SeqLM loads"
        )
    text = _text(tokenizer, model)
    found = (AnsweringModel if model.config.is_encoder_decoder else CausalModel)(model, text)
    if text is not None and text.vocab_size > found.vocab_size:
        raise ValueError(
            f"the tokenizer knows {text.vocab_size} tokens, the model only {found.vocab_size}: it belongs to "
            "another model; give the model's own"
        )
    return found


def _text(tokenizer: Any, model: Any) -> Text | None:
    if tokenizer is None or all(hasattr(tokenizer, name) for name in OURS):
        ours: Text | None = tokenizer
        return ours
    return text_of(tokenizer, model)
