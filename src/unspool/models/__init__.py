"""Assembled models. Those that say one token after another are StepModels: every decoder runs on them."""

from unspool.models.classifier import Classifier, ClassifierConfig
from unspool.models.masked_lm import MaskedLM, MaskedLMConfig
from unspool.models.masked_seq2seq import MaskedSeq2Seq, MaskedSeq2SeqConfig
from unspool.models.rnn_lm import RNNLM, RNNConfig
from unspool.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from unspool.models.tagger import Tagger, TaggerConfig
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.models.transformer_seq2seq import TransformerSeq2Seq, TransformerSeq2SeqConfig
from unspool.models.trigram import Trigram, TrigramConfig

MODELS: dict[str, type] = {
    "classifier": ClassifierConfig,
    "masked_lm": MaskedLMConfig,
    "masked_seq2seq": MaskedSeq2SeqConfig,
    "rnn_lm": RNNConfig,
    "rnn_seq2seq": RNNSeq2SeqConfig,
    "tagger": TaggerConfig,
    "transformer_lm": TransformerConfig,
    "transformer_seq2seq": TransformerSeq2SeqConfig,
    "trigram": TrigramConfig,
}

__all__ = [
    "MODELS",
    "RNNLM",
    "Classifier",
    "ClassifierConfig",
    "MaskedLM",
    "MaskedLMConfig",
    "MaskedSeq2Seq",
    "MaskedSeq2SeqConfig",
    "RNNConfig",
    "RNNSeq2Seq",
    "RNNSeq2SeqConfig",
    "Tagger",
    "TaggerConfig",
    "TransformerConfig",
    "TransformerLM",
    "TransformerSeq2Seq",
    "TransformerSeq2SeqConfig",
    "Trigram",
    "TrigramConfig",
]
