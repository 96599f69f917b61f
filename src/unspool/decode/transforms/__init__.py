"""Transforms: how a row of scores is reshaped before a token is drawn. They apply in the order written."""

from unspool.decode.transforms.adaptive_p import AdaptiveP
from unspool.decode.transforms.bad_words import BadWords
from unspool.decode.transforms.dry import DRY
from unspool.decode.transforms.dynamic_temperature import DynamicTemperature
from unspool.decode.transforms.epsilon import Epsilon
from unspool.decode.transforms.eta import Eta
from unspool.decode.transforms.forced_bos import ForcedBOS
from unspool.decode.transforms.forced_eos import ForcedEOS
from unspool.decode.transforms.frequency_penalty import FrequencyPenalty
from unspool.decode.transforms.grammar import Grammar
from unspool.decode.transforms.kappa import Kappa
from unspool.decode.transforms.logit_bias import LogitBias
from unspool.decode.transforms.min_k import MinK
from unspool.decode.transforms.min_length import MinLength
from unspool.decode.transforms.min_p import MinP
from unspool.decode.transforms.mirostat import Mirostat
from unspool.decode.transforms.no_repeat_ngram import NoRepeatNgram
from unspool.decode.transforms.p_less import PLess
from unspool.decode.transforms.presence_penalty import PresencePenalty
from unspool.decode.transforms.quadratic_smoothing import QuadraticSmoothing
from unspool.decode.transforms.repetition_penalty import RepetitionPenalty
from unspool.decode.transforms.sequence_bias import SequenceBias
from unspool.decode.transforms.tail_free import TailFree
from unspool.decode.transforms.temperature import Temperature
from unspool.decode.transforms.top_a import TopA
from unspool.decode.transforms.top_h import TopH
from unspool.decode.transforms.top_k import TopK
from unspool.decode.transforms.top_n_sigma import TopNSigma
from unspool.decode.transforms.top_p import TopP
from unspool.decode.transforms.truncation import Truncation
from unspool.decode.transforms.typical import Typical
from unspool.decode.transforms.xtc import XTC

TRANSFORMS: dict[str, type] = {
    "AdaptiveP": AdaptiveP,
    "BadWords": BadWords,
    "DRY": DRY,
    "DynamicTemperature": DynamicTemperature,
    "Epsilon": Epsilon,
    "Eta": Eta,
    "ForcedBOS": ForcedBOS,
    "ForcedEOS": ForcedEOS,
    "FrequencyPenalty": FrequencyPenalty,
    "Grammar": Grammar,
    "Kappa": Kappa,
    "LogitBias": LogitBias,
    "MinK": MinK,
    "MinLength": MinLength,
    "MinP": MinP,
    "Mirostat": Mirostat,
    "NoRepeatNgram": NoRepeatNgram,
    "PLess": PLess,
    "PresencePenalty": PresencePenalty,
    "QuadraticSmoothing": QuadraticSmoothing,
    "RepetitionPenalty": RepetitionPenalty,
    "SequenceBias": SequenceBias,
    "TailFree": TailFree,
    "Temperature": Temperature,
    "TopA": TopA,
    "TopH": TopH,
    "TopK": TopK,
    "TopNSigma": TopNSigma,
    "TopP": TopP,
    "Typical": Typical,
    "XTC": XTC,
}

__all__ = [
    "DRY",
    "TRANSFORMS",
    "XTC",
    "AdaptiveP",
    "BadWords",
    "DynamicTemperature",
    "Epsilon",
    "Eta",
    "ForcedBOS",
    "ForcedEOS",
    "FrequencyPenalty",
    "Grammar",
    "Kappa",
    "LogitBias",
    "MinK",
    "MinLength",
    "MinP",
    "Mirostat",
    "NoRepeatNgram",
    "PLess",
    "PresencePenalty",
    "QuadraticSmoothing",
    "RepetitionPenalty",
    "SequenceBias",
    "TailFree",
    "Temperature",
    "TopA",
    "TopH",
    "TopK",
    "TopNSigma",
    "TopP",
    "Truncation",
    "Typical",
]
