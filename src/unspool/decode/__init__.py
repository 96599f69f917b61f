"""Decoding: from next-token distributions to text. The package knows models only by their interface.

    us.generate(model, prompt, us.Sample(us.decode.TopA(0.2)))

All decoders, transforms and rules that a decoder string can name are attributes, imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.decode.chat import Chat as Chat
    from unspool.decode.combine import (
        Contrast as Contrast,
        DExperts as DExperts,
        EarlyExit as EarlyExit,
        Ensemble as Ensemble,
        Guidance as Guidance,
    )
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
    from unspool.decode.score import Score as Score
    from unspool.decode.search import (
        MBR as MBR,
        Beam as Beam,
        BeamSample as BeamSample,
        ChrF as ChrF,
        ConstrainedBeam as ConstrainedBeam,
        ContrastiveSearch as ContrastiveSearch,
        DiverseBeam as DiverseBeam,
        ExactSearch as ExactSearch,
        Greedy as Greedy,
        MaskedDiffusion as MaskedDiffusion,
        MaskPredict as MaskPredict,
        Sample as Sample,
        Speculative as Speculative,
        StochasticBeam as StochasticBeam,
        TokenF1 as TokenF1,
    )
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
        ThinkingBudget as ThinkingBudget,
        TopA as TopA,
        TopH as TopH,
        TopK as TopK,
        TopNSigma as TopNSigma,
        TopP as TopP,
        Typical as Typical,
    )

__all__, __getattr__, __dir__ = lazy_exports(__name__)
