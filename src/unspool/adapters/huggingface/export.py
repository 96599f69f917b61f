"""A model of ours as a Hugging Face one: the same weights, for their tools and for comparison.

    hf = to_huggingface(us.load("smollm2"))

`us.save(model, folder, format="huggingface")` writes the folder that their `from_pretrained` reads, without
their package.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from unspool.adapters.needed_packages import TRANSFORMERS
from unspool.models.load.seq2seq_twin import twin_of
from unspool.models.transformer_lm import TransformerLM
from unspool.models.transformer_seq2seq import TransformerSeq2Seq


def to_huggingface(model: TransformerLM | TransformerSeq2Seq) -> Any:
    """The class of theirs that says the same, with this model's weights, and with its BOS and EOS.

    A `LlamaForCausalLM`, `MistralForCausalLM` or `GPT2LMHeadModel` of a language model, and of an
    encoder–decoder a `BartForConditionalGeneration`, `MarianMTModel` or `T5ForConditionalGeneration`.
    """
    transformers = TRANSFORMERS.imported("to_huggingface")
    twin = twin_of(model)
    config = transformers.AutoConfig.for_model(twin.family, **twin.config)
    made = getattr(transformers, twin.architecture)(config)
    tied = twin.config["tie_word_embeddings"]
    if not tied:  # T5's class ties its head whatever is said, unless a file holds another one
        head = made.get_output_embeddings()
        head.weight = nn.Parameter(head.weight.detach().clone())
    missing, unexpected = made.load_state_dict(twin.weights, strict=False)
    implied = twin.implied | ({"lm_head.weight"} if tied else frozenset())
    if unexpected or not implied.issuperset(missing):
        raise ValueError(
            f"weights do not fit {type(made).__name__}: missing {missing}, unexpected {unexpected}"
        )
    return made.to(model.embed.weight).eval()
