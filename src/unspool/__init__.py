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

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.basis import BasisTest as BasisTest
    from unspool.decode.chat import Chat as Chat
    from unspool.decode.combine import (
        Contrast as Contrast,
        DExperts as DExperts,
        EarlyExit as EarlyExit,
        Ensemble as Ensemble,
        Guidance as Guidance,
    )
    from unspool.decode.generate import generate as generate, stream as stream
    from unspool.decode.loops import (
        ApproximateLoop as ApproximateLoop,
        Loop as Loop,
        find_approximate_loop as find_approximate_loop,
        find_loop as find_loop,
    )
    from unspool.decode.multinomial import Multinomial as Multinomial
    from unspool.decode.output import Output as Output, Piece as Piece
    from unspool.decode.picks import (
        ArgMax as ArgMax,
        BasisAware as BasisAware,
        ConstantTau as ConstantTau,
        EtaTau as EtaTau,
        NucleusTau as NucleusTau,
    )
    from unspool.decode.ranking import (
        GNMT as GNMT,
        Coverage as Coverage,
        FirstFull as FirstFull,
        Heuristic as Heuristic,
        Length as Length,
        Proved as Proved,
        Sum as Sum,
    )
    from unspool.decode.score import Score as Score, score as score
    from unspool.decode.search import (
        MBR as MBR,
        Beam as Beam,
        BeamSample as BeamSample,
        ChrF as ChrF,
        ConstrainedBeam as ConstrainedBeam,
        ContrastiveSearch as ContrastiveSearch,
        DiverseBeam as DiverseBeam,
        Greedy as Greedy,
        MaskedDiffusion as MaskedDiffusion,
        MaskPredict as MaskPredict,
        Sample as Sample,
        Speculative as Speculative,
        StochasticBeam as StochasticBeam,
        TokenF1 as TokenF1,
    )
    from unspool.decode.spec import parse as parse
    from unspool.decode.transforms import (
        DRY as DRY,
        XTC as XTC,
        AdaptiveP as AdaptiveP,
        BadWords as BadWords,
        DynamicTemperature as DynamicTemperature,
        Epsilon as Epsilon,
        Eta as Eta,
        ForcedBOS as ForcedBOS,
        ForcedEOS as ForcedEOS,
        FrequencyPenalty as FrequencyPenalty,
        Grammar as Grammar,
        Kappa as Kappa,
        LogitBias as LogitBias,
        MinK as MinK,
        MinLength as MinLength,
        MinP as MinP,
        Mirostat as Mirostat,
        NoRepeatNgram as NoRepeatNgram,
        PLess as PLess,
        PresencePenalty as PresencePenalty,
        QuadraticSmoothing as QuadraticSmoothing,
        RepetitionPenalty as RepetitionPenalty,
        SequenceBias as SequenceBias,
        TailFree as TailFree,
        Temperature as Temperature,
        TopA as TopA,
        TopH as TopH,
        TopK as TopK,
        TopNSigma as TopNSigma,
        TopP as TopP,
        Typical as Typical,
    )
    from unspool.decode.transforms.survivors import survivors as survivors
    from unspool.integrations import hf as hf
    from unspool.integrations.huggingface.loading import (
        from_huggingface as from_huggingface,
        to_huggingface as to_huggingface,
    )
    from unspool.integrations.loading import load as load
    from unspool.integrations.ray.dataset import generate_dataset as generate_dataset
    from unspool.models.labelling import (
        Classifier as Classifier,
        ClassifierConfig as ClassifierConfig,
        Prediction as Prediction,
        TaggedWord as TaggedWord,
        Tagger as Tagger,
        TaggerConfig as TaggerConfig,
        predict as predict,
    )
    from unspool.models.loading import save as save
    from unspool.models.loading.lora_file import (
        load_adapters as load_adapters,
        save_adapters as save_adapters,
    )
    from unspool.models.lora import (
        LoRA as LoRA,
        add_adapters as add_adapters,
        merge_adapters as merge_adapters,
    )
    from unspool.models.masked_lm import MaskedLM as MaskedLM, MaskedLMConfig as MaskedLMConfig
    from unspool.models.masked_seq2seq import (
        MaskedSeq2Seq as MaskedSeq2Seq,
        MaskedSeq2SeqConfig as MaskedSeq2SeqConfig,
    )
    from unspool.models.rnn_lm import RNNLM as RNNLM, RNNConfig as RNNConfig
    from unspool.models.rnn_seq2seq import RNNSeq2Seq as RNNSeq2Seq, RNNSeq2SeqConfig as RNNSeq2SeqConfig
    from unspool.models.transformer_lm import (
        TransformerConfig as TransformerConfig,
        TransformerLM as TransformerLM,
    )
    from unspool.models.transformer_seq2seq import (
        TransformerSeq2Seq as TransformerSeq2Seq,
        TransformerSeq2SeqConfig as TransformerSeq2SeqConfig,
    )
    from unspool.models.trigram import Trigram as Trigram, TrigramConfig as TrigramConfig
    from unspool.training.run import train as train

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = lazy_exports(__name__)
