"""unspool: train neural sequence models, decode them in every known way, and measure why text degenerates.

    import unspool as us

    model = us.load("smollm2")
    out = us.generate(model, "Once upon a time", us.Sample(us.Temperature(0.8), us.TopP(0.9)), seed=1)
    print(out.text)

Everything else is in subpackages, which are attributes too: `us.decode.TopA`, `us.models.TransformerConfig`,
`us.evaluate.perplexity`. Names are imported on first use, so that `import unspool` is fast and torch is
imported only if it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool import (
        basis as basis,
        data as data,
        decode as decode,
        diagnose as diagnose,
        evaluate as evaluate,
        heads as heads,
        integrations as integrations,
        lab as lab,
        models as models,
        objectives as objectives,
        plots as plots,
        testing as testing,
        tokenization as tokenization,
        training as training,
    )
    from unspool.decode.chat import Chat as Chat
    from unspool.decode.combine import (
        Contrast as Contrast,
        DExperts as DExperts,
        EarlyExit as EarlyExit,
        Ensemble as Ensemble,
        Guidance as Guidance,
    )
    from unspool.decode.generate import agenerate as agenerate, generate as generate, stream as stream
    from unspool.decode.loops import find_loop as find_loop
    from unspool.decode.output import Output as Output, Piece as Piece
    from unspool.decode.picks import ArgMax as ArgMax, BasisAware as BasisAware
    from unspool.decode.ranking import GNMT as GNMT, Length as Length
    from unspool.decode.score import score as score
    from unspool.decode.search import (
        MBR as MBR,
        Beam as Beam,
        BeamSample as BeamSample,
        ConstrainedBeam as ConstrainedBeam,
        ContrastiveSearch as ContrastiveSearch,
        DiverseBeam as DiverseBeam,
        ExactSearch as ExactSearch,
        Greedy as Greedy,
        MaskedDiffusion as MaskedDiffusion,
        MaskPredict as MaskPredict,
        PromptLookup as PromptLookup,
        Sample as Sample,
        Speculative as Speculative,
        StochasticBeam as StochasticBeam,
    )
    from unspool.decode.spec import parse as parse
    from unspool.decode.transforms import (
        DRY as DRY,
        XTC as XTC,
        BadWords as BadWords,
        Epsilon as Epsilon,
        Eta as Eta,
        FrequencyPenalty as FrequencyPenalty,
        Grammar as Grammar,
        LogitBias as LogitBias,
        MinLength as MinLength,
        MinP as MinP,
        Mirostat as Mirostat,
        NoRepeatNgram as NoRepeatNgram,
        PresencePenalty as PresencePenalty,
        RepetitionPenalty as RepetitionPenalty,
        Temperature as Temperature,
        ThinkingBudget as ThinkingBudget,
        TopK as TopK,
        TopNSigma as TopNSigma,
        TopP as TopP,
        Typical as Typical,
    )
    from unspool.decode.transforms.scores import survivors as survivors
    from unspool.integrations import hf as hf
    from unspool.integrations.huggingface.loading import (
        from_huggingface as from_huggingface,
        to_huggingface as to_huggingface,
    )
    from unspool.integrations.loading import load as load
    from unspool.models.labelling import predict as predict
    from unspool.models.loading import save as save
    from unspool.training.run import train as train

__version__ = "0.2.0"

__all__, __getattr__, __dir__ = lazy_exports(__name__)
