"""Any causal or encoder–decoder model of transformers as a model of ours: every search runs on it.

model = us.from_huggingface(AutoModelForCausalLM.from_pretrained(…), AutoTokenizer.from_pretrained(…))
us.generate(model, "Once upon a time", us.Beam(5))
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers
import torch
from torch import nn

from unspool.integrations.huggingface.causal_model import TransformersCausalLM, model_eos_ids
from unspool.integrations.huggingface.seq2seq_model import TransformersSeq2Seq
from unspool.integrations.loading import TRANSFORMERS
from unspool.models.loading.huggingface_export import export_to_huggingface
from unspool.models.loading.tokenizer import load_huggingface_tokenizer
from unspool.models.transformer_lm import TransformerLM
from unspool.models.transformer_seq2seq import TransformerSeq2Seq
from unspool.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from unspool.interfaces import TokenizerLike

# A tokenizer of transformers as a model's text, for all that is built on the tokenizers library.


def convert_tokenizer(tokenizer: Any, model: Any) -> Tokenizer:
    """The codec that reads and writes as the tokenizer does; texts end where it or the model says."""
    inner = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(inner, tokenizers.Tokenizer):
        raise TypeError(
            f"the tokenizer is {tokenizer!r:.80}, but must be one of the tokenizers library, the only kind "
            "that is read: leave it out, give token ids, and decode what comes (out.tokens) with it"
        )
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    template = getattr(tokenizer, "chat_template", None)
    return Tokenizer(
        tokenizers.Tokenizer.from_str(inner.to_str()),  # a copy: ours switches truncation and padding off
        bos_id=bos,
        eos_ids=model_eos_ids(model) | (frozenset() if eos is None else {eos}),
        add_bos=bos is not None and tokenizer("").input_ids[:1] == [bos],
        chat_template=template if isinstance(template, str) else None,
        bos_token=tokenizer.bos_token or "",
        eos_token=tokenizer.eos_token or "",
    )


TOKENIZER_METHODS = ("encode", "decode", "detokenizer", "eos_ids")
"""What a text of ours has."""


def from_huggingface(model: Any, tokenizer: Any = None) -> TransformersCausalLM | TransformersSeq2Seq:
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
    text = _as_tokenizer(tokenizer, model)
    found = (TransformersSeq2Seq if model.config.is_encoder_decoder else TransformersCausalLM)(model, text)
    if text is not None and text.vocab_size > found.vocab_size:
        raise ValueError(
            f"the tokenizer knows {text.vocab_size} tokens, the model only {found.vocab_size}: it belongs to "
            "another model; give the model's own"
        )
    return found


def _as_tokenizer(tokenizer: Any, model: Any) -> TokenizerLike | None:
    if tokenizer is None or all(hasattr(tokenizer, name) for name in TOKENIZER_METHODS):
        ours: TokenizerLike | None = tokenizer
        return ours
    return convert_tokenizer(tokenizer, model)


def load_folder(
    folder: Path, device: torch.device, dtype: torch.dtype
) -> TransformersCausalLM | TransformersSeq2Seq:
    """The model with its tokenizer, where there is a tokenizer.json.

    A Hugging Face folder, read and run by transformers: families that this package has no classes for.

    No code of a model is run, and no pickle is read. transformers fills tensors that a file lacks with random
    numbers; such a folder is refused.
    """
    library = TRANSFORMERS.imported(f"{folder}: a model of this family")
    try:
        with _quiet_logging(library):
            model, info = _read(library, folder, dtype)
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged file or a wrong setting makes transformers raise
        raise ValueError(f"{folder}: transformers cannot load this model: {_reason(error)}") from error
    missing, unused = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    if missing:
        raise ValueError(
            f"{folder}: {_count(missing)} missing in the weights, {missing[0]} among them: fetch the whole "
            "model, or correct config.json"
        )
    if unused:
        warnings.warn(
            f"{folder}: {_count(unused)} not used by this model, {unused[0]} among them",
            UserWarning,
            stacklevel=2,
        )
    return from_huggingface(model.to(device).eval(), load_huggingface_tokenizer(folder))


def _read(library: Any, folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    config = library.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    kind = library.AutoModelForSeq2SeqLM if config.is_encoder_decoder else library.AutoModelForCausalLM
    found: tuple[Any, Any] = kind.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    return found


@contextmanager
def _quiet_logging(library: Any) -> Iterator[None]:
    """Without the tables of missing tensors that transformers logs: what matters is said here."""
    before = library.logging.get_verbosity()
    library.logging.set_verbosity_error()
    try:
        yield
    finally:
        library.logging.set_verbosity(before)


def _reason(error: Exception) -> str:
    """The first line of a message; the kind of error goes before a mere value (KeyError: 'weight_map')."""
    line = str(error).strip().partition("\n")[0][:200]
    if "ignore_mismatched_sizes" in line:  # its details are in a table above it
        return "shapes of tensors in its files and in config.json differ"
    if len(line.split()) < 3:
        return f"{type(error).__name__}: {line}"
    return line.rstrip(":.")


def _count(names: list[str]) -> str:
    return "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"


def to_huggingface(model: TransformerLM | TransformerSeq2Seq) -> Any:
    """The class of theirs that says the same, with this model's weights, and with its BOS and EOS.

    A `LlamaForCausalLM`, `MistralForCausalLM` or `GPT2LMHeadModel` of a language model, and of an
    encoder–decoder a `BartForConditionalGeneration`, `MarianMTModel` or `T5ForConditionalGeneration`.

    A model of ours as a Hugging Face one: the same weights, for their tools and for comparison.

        hf = to_huggingface(us.load("smollm2"))

    `us.save(model, folder, format="huggingface")` writes the folder that their `from_pretrained` reads,
    without their package.
    """
    transformers = TRANSFORMERS.imported("to_huggingface")
    twin = export_to_huggingface(model)
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
