"""Convert models between this package and Hugging Face transformers.

model = us.from_huggingface(AutoModelForCausalLM.from_pretrained(…), AutoTokenizer.from_pretrained(…))
us.generate(model, "Once upon a time", us.Beam(5))
hf = us.to_huggingface(us.load("smollm2"))
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import nn

from unspool.integrations.huggingface.causal_model import TransformersCausalLM, model_eos_ids
from unspool.integrations.huggingface.seq2seq_model import TransformersSeq2Seq
from unspool.integrations.loading import TRANSFORMERS
from unspool.interfaces import TokenizerLike
from unspool.models.loading.assembly import list_names
from unspool.models.loading.huggingface_export import export_to_huggingface
from unspool.models.loading.model_names import load_huggingface_tokenizer
from unspool.models.transformer_lm import TransformerLM
from unspool.models.transformer_seq2seq import TransformerSeq2Seq
from unspool.tokenization.tokenizer import Tokenizer


def convert_tokenizer(tokenizer: Any, model: Any) -> Tokenizer:
    """Convert a fast tokenizer of transformers; EOS ids come from the tokenizer and the model."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise TypeError(
            f"the tokenizer is {tokenizer!r:.80}, but must be a fast tokenizer: leave it out, use ids, "
            "and decode out.tokens with it"
        )
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    template = getattr(tokenizer, "chat_template", None)
    return Tokenizer(
        tokenizers.Tokenizer.from_str(backend.to_str()),  # a copy without padding
        bos_id=bos,
        eos_ids=model_eos_ids(model) | (frozenset() if eos is None else {eos}),
        add_bos=bos is not None and tokenizer("").input_ids[:1] == [bos],
        chat_template=template if isinstance(template, str) else None,
        bos_token=tokenizer.bos_token or "",
        eos_token=tokenizer.eos_token or "",
    )


TOKENIZER_METHODS = ("encode", "decode", "detokenizer", "eos_ids")
"""Members of the tokenizers of this package."""


def from_huggingface(model: Any, tokenizer: Any = None) -> TransformersCausalLM | TransformersSeq2Seq:
    """Wrap a causal or encoder–decoder model of transformers as a StepModel, without copying it.

    `tokenizer` is a tokenizer of transformers or of this package. Without one, prompts and outputs are token
    ids, and EOS is `eos_token_id` of generation_config or config.
    """
    library = TRANSFORMERS.require("from_huggingface")
    if not isinstance(model, library.PreTrainedModel) or not model.can_generate():
        raise TypeError(
            f"{model!r:.80} is not a generating model of transformers: load one with AutoModelForCausalLM or "
            "AutoModelForSeq2SeqLM"
        )
    kind = TransformersSeq2Seq if model.config.is_encoder_decoder else TransformersCausalLM
    wrapped = kind(model, _as_tokenizer(tokenizer, model))
    if wrapped.tokenizer is not None and wrapped.tokenizer.vocab_size > wrapped.vocab_size:
        raise ValueError(
            f"the tokenizer has {wrapped.tokenizer.vocab_size} tokens, the model only {wrapped.vocab_size}: "
            "give the model's own tokenizer"
        )
    return wrapped


def _as_tokenizer(tokenizer: Any, model: Any) -> TokenizerLike | None:
    if tokenizer is None or all(hasattr(tokenizer, name) for name in TOKENIZER_METHODS):
        return tokenizer
    return convert_tokenizer(tokenizer, model)


def load_folder(
    folder: Path, device: torch.device, dtype: torch.dtype
) -> TransformersCausalLM | TransformersSeq2Seq:
    """Load a Hugging Face folder with transformers, for families that this package does not implement.

    Code in the folder (`auto_map`) is not run, and pickles are not read. transformers fills missing tensors
    with random numbers; such a folder is rejected.
    """
    library = TRANSFORMERS.require(f"{folder}: a model of this family")
    try:
        with _quiet_logging(library):
            model, info = _read(library, folder, dtype)
    except MemoryError:
        raise
    except Exception as error:  # damaged files and wrong settings raise many kinds
        raise ValueError(f"{folder}: transformers cannot load this model: {_reason(error)}") from error
    missing, unused = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    if missing:
        raise ValueError(
            f"{folder}: tensors missing in the weights: {list_names(missing)}; fetch the complete model, or "
            "correct config.json"
        )
    if unused:
        warnings.warn(f"{folder}: tensors not used by this model: {list_names(unused)}", stacklevel=2)
    return from_huggingface(model.to(device).eval(), load_huggingface_tokenizer(folder))


def _read(library: Any, folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    config = library.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    kind = library.AutoModelForSeq2SeqLM if config.is_encoder_decoder else library.AutoModelForCausalLM
    return kind.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
    )


@contextmanager
def _quiet_logging(library: Any) -> Iterator[None]:
    """Suppress the tables of missing tensors that transformers logs, and its progress bar."""
    before, has_bar = library.logging.get_verbosity(), library.logging.is_progress_bar_enabled()
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    try:
        yield
    finally:
        library.logging.set_verbosity(before)
        if has_bar:
            library.logging.enable_progress_bar()


def _reason(error: Exception) -> str:
    """The first line of a message, with the error type if it is a mere value (KeyError: 'weight_map')."""
    line = str(error).strip().partition("\n")[0][:200]
    if "ignore_mismatched_sizes" in line:  # the details are in the suppressed table
        return "tensor shapes in its files and in config.json differ"
    if len(line.split()) < 3:
        return f"{type(error).__name__}: {line}"
    return line.rstrip(":.")


def to_huggingface(model: TransformerLM | TransformerSeq2Seq) -> Any:
    """Convert a model to the equal transformers model, with its weights, BOS and EOS.

    Language models become `LlamaForCausalLM`, `MistralForCausalLM` or `GPT2LMHeadModel`, encoder–decoders
    `BartForConditionalGeneration`, `MarianMTModel` or `T5ForConditionalGeneration`.

    `us.save(model, folder, format="huggingface")` writes a folder for `from_pretrained` without needing
    transformers.
    """
    transformers = TRANSFORMERS.require("to_huggingface")
    export = export_to_huggingface(model)
    config = transformers.AutoConfig.for_model(export.family, **export.config)
    converted = getattr(transformers, export.architecture)(config)
    tied = export.config["tie_word_embeddings"]
    if not tied:  # T5's class always ties its head unless a file has another one
        head = converted.get_output_embeddings()
        head.weight = nn.Parameter(head.weight.detach().clone())
    missing, unexpected = converted.load_state_dict(export.weights, strict=False)
    implied = export.implied | ({"lm_head.weight"} if tied else frozenset())
    if unexpected or not implied.issuperset(missing):
        raise ValueError(
            f"weights do not fit {type(converted).__name__}: missing {missing}, unexpected {unexpected}"
        )
    return converted.to(model.embed.weight).eval()
