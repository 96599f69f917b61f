"""Transforms: reshape the scores of every row before a token is drawn. They apply in the order given."""

from unspool.decode.transforms.forced_tokens import ForcedBOS, ForcedEOS, MinLength, ThinkingBudget
from unspool.decode.transforms.grammar import Grammar
from unspool.decode.transforms.nucleus import MinK, TailFree, TopH, TopP, Typical
from unspool.decode.transforms.penalties import (
    DRY,
    BadWords,
    FrequencyPenalty,
    LogitBias,
    NoRepeatNgram,
    PresencePenalty,
    RepetitionPenalty,
    SequenceBias,
)
from unspool.decode.transforms.scores import Truncation as Truncation
from unspool.decode.transforms.temperature import (
    AdaptiveP,
    DynamicTemperature,
    Mirostat,
    QuadraticSmoothing,
    Temperature,
)
from unspool.decode.transforms.thresholds import (
    XTC,
    Epsilon,
    Eta,
    Kappa,
    MinP,
    PLess,
    TopA,
    TopK,
    TopNSigma,
)

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
    "ThinkingBudget": ThinkingBudget,
    "TopA": TopA,
    "TopH": TopH,
    "TopK": TopK,
    "TopNSigma": TopNSigma,
    "TopP": TopP,
    "Typical": Typical,
    "XTC": XTC,
}
