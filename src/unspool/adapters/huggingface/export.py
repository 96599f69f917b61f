"""A model of ours as a Hugging Face one: the same weights, for their tools and for comparison.

    hf = to_huggingface(us.load("smollm2"))

`us.save(model, folder, format="huggingface")` writes the folder that their `from_pretrained` reads, without
their package.
"""

from __future__ import annotations

from typing import Any

from unspool.adapters.needed_packages import TRANSFORMERS
from unspool.models.load.huggingface_twin import huggingface_twin
from unspool.models.transformer_lm import TransformerLM


def to_huggingface(model: TransformerLM) -> Any:
    """The `LlamaForCausalLM` or `GPT2LMHeadModel` with this model's weights, and with its BOS and EOS."""
    transformers = TRANSFORMERS.imported("to_huggingface")
    twin = huggingface_twin(model)
    config = transformers.AutoConfig.for_model(twin.family, **twin.config)
    made = getattr(transformers, twin.architecture)(config)
    missing, unexpected = made.load_state_dict(twin.weights, strict=False)
    tied = twin.config["tie_word_embeddings"]
    if unexpected or [name for name in missing if not (tied and name == "lm_head.weight")]:
        raise ValueError(
            f"weights do not fit {type(made).__name__}: missing {missing}, unexpected {unexpected}"
        )
    return made.to(model.embed.weight).eval()
