"""unspool: train neural sequence generators, unspool text from them every way that is known, and see why
text degenerates.

    import unspool as us

    model = us.load("smollm2")
    out = us.generate(model, "Once upon a time", us.Sample(us.Temperature(0.8), us.TopP(0.9)), seed=1)
    print(out.text)

Names are imported when first used, so that `import unspool` is quick and torch is loaded only when needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.deferred import deferred

if TYPE_CHECKING:
    from unspool.adapters.huggingface import to_huggingface
    from unspool.basis import BasisTest
    from unspool.decode.combine import Contrast, EarlyExit, Ensemble
    from unspool.decode.generate import Output, Piece, generate, stream
    from unspool.decode.loops import Loop, find_loop
    from unspool.decode.picks import ArgMax, BasisAware, ConstantTau, EtaTau, Multinomial, NucleusTau
    from unspool.decode.ranking import GNMT, Coverage, FirstFull, Heuristic, Length, Proved, Sum
    from unspool.decode.score import Score, score
    from unspool.decode.search import (
        MBR,
        Beam,
        BeamSample,
        ChrF,
        ConstrainedBeam,
        ContrastiveSearch,
        DiverseBeam,
        Greedy,
        Sample,
        Speculative,
        StochasticBeam,
        TokenF1,
    )
    from unspool.decode.spec import parse
    from unspool.decode.transforms import (
        DRY,
        XTC,
        BadWords,
        Epsilon,
        Eta,
        ForcedBOS,
        ForcedEOS,
        FrequencyPenalty,
        Kappa,
        LogitBias,
        MinLength,
        MinP,
        Mirostat,
        NoRepeatNgram,
        PLess,
        PresencePenalty,
        RepetitionPenalty,
        SequenceBias,
        TailFree,
        Temperature,
        TopA,
        TopH,
        TopK,
        TopNSigma,
        TopP,
        Typical,
    )
    from unspool.decode.transforms.survivors import survivors
    from unspool.models.classifier import Classifier, ClassifierConfig
    from unspool.models.labels import Prediction
    from unspool.models.load import load, save
    from unspool.models.prediction import predict
    from unspool.models.rnn_lm import RNNLM, RNNConfig
    from unspool.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
    from unspool.models.tagger import TaggedWord, Tagger, TaggerConfig
    from unspool.models.transformer_lm import TransformerConfig, TransformerLM
    from unspool.models.transformer_seq2seq import TransformerSeq2Seq, TransformerSeq2SeqConfig
    from unspool.models.trigram import Trigram, TrigramConfig
    from unspool.training.run import train

__version__ = "0.1.0"

_HOME: dict[str, str] = {
    "ArgMax": "unspool.decode.picks",
    "BadWords": "unspool.decode.transforms",
    "BasisAware": "unspool.decode.picks",
    "BasisTest": "unspool.basis",
    "Beam": "unspool.decode.search",
    "BeamSample": "unspool.decode.search",
    "ChrF": "unspool.decode.search",
    "Classifier": "unspool.models.classifier",
    "ClassifierConfig": "unspool.models.classifier",
    "ConstantTau": "unspool.decode.picks",
    "ConstrainedBeam": "unspool.decode.search",
    "Contrast": "unspool.decode.combine",
    "ContrastiveSearch": "unspool.decode.search",
    "Coverage": "unspool.decode.ranking",
    "DRY": "unspool.decode.transforms",
    "DiverseBeam": "unspool.decode.search",
    "EarlyExit": "unspool.decode.combine",
    "Ensemble": "unspool.decode.combine",
    "Epsilon": "unspool.decode.transforms",
    "Eta": "unspool.decode.transforms",
    "EtaTau": "unspool.decode.picks",
    "FirstFull": "unspool.decode.ranking",
    "ForcedBOS": "unspool.decode.transforms",
    "ForcedEOS": "unspool.decode.transforms",
    "FrequencyPenalty": "unspool.decode.transforms",
    "GNMT": "unspool.decode.ranking",
    "Greedy": "unspool.decode.search",
    "Heuristic": "unspool.decode.ranking",
    "Kappa": "unspool.decode.transforms",
    "Length": "unspool.decode.ranking",
    "LogitBias": "unspool.decode.transforms",
    "Loop": "unspool.decode.loops",
    "MBR": "unspool.decode.search",
    "MinLength": "unspool.decode.transforms",
    "MinP": "unspool.decode.transforms",
    "Mirostat": "unspool.decode.transforms",
    "Multinomial": "unspool.decode.picks",
    "NoRepeatNgram": "unspool.decode.transforms",
    "NucleusTau": "unspool.decode.picks",
    "Output": "unspool.decode.generate",
    "PLess": "unspool.decode.transforms",
    "Piece": "unspool.decode.generate",
    "Prediction": "unspool.models.labels",
    "PresencePenalty": "unspool.decode.transforms",
    "Proved": "unspool.decode.ranking",
    "RNNConfig": "unspool.models.rnn_lm",
    "RNNLM": "unspool.models.rnn_lm",
    "RNNSeq2Seq": "unspool.models.rnn_seq2seq",
    "RNNSeq2SeqConfig": "unspool.models.rnn_seq2seq",
    "RepetitionPenalty": "unspool.decode.transforms",
    "Sample": "unspool.decode.search",
    "Score": "unspool.decode.score",
    "SequenceBias": "unspool.decode.transforms",
    "Speculative": "unspool.decode.search",
    "StochasticBeam": "unspool.decode.search",
    "Sum": "unspool.decode.ranking",
    "TaggedWord": "unspool.models.tagger",
    "Tagger": "unspool.models.tagger",
    "TaggerConfig": "unspool.models.tagger",
    "TailFree": "unspool.decode.transforms",
    "Temperature": "unspool.decode.transforms",
    "TokenF1": "unspool.decode.search",
    "TopA": "unspool.decode.transforms",
    "TopH": "unspool.decode.transforms",
    "TopK": "unspool.decode.transforms",
    "TopNSigma": "unspool.decode.transforms",
    "TopP": "unspool.decode.transforms",
    "TransformerConfig": "unspool.models.transformer_lm",
    "TransformerLM": "unspool.models.transformer_lm",
    "TransformerSeq2Seq": "unspool.models.transformer_seq2seq",
    "TransformerSeq2SeqConfig": "unspool.models.transformer_seq2seq",
    "Trigram": "unspool.models.trigram",
    "TrigramConfig": "unspool.models.trigram",
    "Typical": "unspool.decode.transforms",
    "XTC": "unspool.decode.transforms",
    "find_loop": "unspool.decode.loops",
    "generate": "unspool.decode.generate",
    "load": "unspool.models.load",
    "parse": "unspool.decode.spec",
    "predict": "unspool.models.prediction",
    "save": "unspool.models.load",
    "score": "unspool.decode.score",
    "stream": "unspool.decode.generate",
    "survivors": "unspool.decode.transforms.survivors",
    "to_huggingface": "unspool.adapters.huggingface",
    "train": "unspool.training.run",
}

__all__ = [
    "DRY",
    "GNMT",
    "MBR",
    "RNNLM",
    "XTC",
    "ArgMax",
    "BadWords",
    "BasisAware",
    "BasisTest",
    "Beam",
    "BeamSample",
    "ChrF",
    "Classifier",
    "ClassifierConfig",
    "ConstantTau",
    "ConstrainedBeam",
    "Contrast",
    "ContrastiveSearch",
    "Coverage",
    "DiverseBeam",
    "EarlyExit",
    "Ensemble",
    "Epsilon",
    "Eta",
    "EtaTau",
    "FirstFull",
    "ForcedBOS",
    "ForcedEOS",
    "FrequencyPenalty",
    "Greedy",
    "Heuristic",
    "Kappa",
    "Length",
    "LogitBias",
    "Loop",
    "MinLength",
    "MinP",
    "Mirostat",
    "Multinomial",
    "NoRepeatNgram",
    "NucleusTau",
    "Output",
    "PLess",
    "Piece",
    "Prediction",
    "PresencePenalty",
    "Proved",
    "RNNConfig",
    "RNNSeq2Seq",
    "RNNSeq2SeqConfig",
    "RepetitionPenalty",
    "Sample",
    "Score",
    "SequenceBias",
    "Speculative",
    "StochasticBeam",
    "Sum",
    "TaggedWord",
    "Tagger",
    "TaggerConfig",
    "TailFree",
    "Temperature",
    "TokenF1",
    "TopA",
    "TopH",
    "TopK",
    "TopNSigma",
    "TopP",
    "TransformerConfig",
    "TransformerLM",
    "TransformerSeq2Seq",
    "TransformerSeq2SeqConfig",
    "Trigram",
    "TrigramConfig",
    "Typical",
    "find_loop",
    "generate",
    "load",
    "parse",
    "predict",
    "save",
    "score",
    "stream",
    "survivors",
    "to_huggingface",
    "train",
]


__getattr__ = deferred(__name__, _HOME)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
