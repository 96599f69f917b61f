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
    from unspool.decode.search import *  # noqa: F403
    from unspool.decode.transforms import *  # noqa: F403

__all__, __getattr__, __dir__ = lazy_exports(__name__)
