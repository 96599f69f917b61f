"""A Hugging Face folder, read and run by transformers: families that this package has no classes for.

No code of a model is run, and no pickle is read.
"""

from __future__ import annotations

from pathlib import Path

import torch

from unspool.adapters.huggingface.answering_model import AnsweringModel
from unspool.adapters.huggingface.causal_model import CausalModel
from unspool.adapters.huggingface.wrapping import from_huggingface
from unspool.adapters.needed_packages import TRANSFORMERS
from unspool.models.load.tokenizer import text_of_huggingface


def load_folder(folder: Path, device: torch.device, dtype: torch.dtype) -> CausalModel | AnsweringModel:
    """The model with its tokenizer, where there is a tokenizer.json."""
    library = TRANSFORMERS.imported(f"{folder}: a model of this family")
    from huggingface_hub.errors import StrictDataclassError  # part of transformers' own requirements

    try:
        config = library.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        kind = library.AutoModelForSeq2SeqLM if config.is_encoder_decoder else library.AutoModelForCausalLM
        model = kind.from_pretrained(
            folder, config=config, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, StrictDataclassError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{folder}: transformers cannot load this model: {reason}") from error
    return from_huggingface(model.to(device).eval(), text_of_huggingface(folder))
