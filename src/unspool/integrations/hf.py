"""`us.hf`: what a user of Hugging Face's transformers needs to decode with this package in `generate`.

    import unspool as us

    basis_aware = us.hf.processor(us.BasisAware(0.1), model=model, seed=1)
    model.generate(**inputs, logits_processor=[basis_aware], max_new_tokens=60)
    model.generate(**inputs, custom_generate=us.hf.beam(5, length_penalty=us.GNMT(0.6)), max_new_tokens=60)
    model.generate(**inputs, custom_generate=us.hf.sample(us.TopP(0.9)), max_new_tokens=60, seed=1)

`us.from_huggingface` goes the other way: their model as one of ours, for `us.generate` and all else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

from unspool.decode.search import (
    MBR,
    Beam,
    BeamSample,
    ConstrainedBeam,
    ContrastiveSearch,
    DiverseBeam,
    Greedy,
    Sample,
    Speculative,
    StochasticBeam,
)
from unspool.decode.spec import as_decoder
from unspool.integrations.loading import TRANSFORMERS
from unspool.interfaces import Decoder, Pick, Transform

if TYPE_CHECKING:
    from unspool.integrations.huggingface.custom_generate import CustomGenerate
    from unspool.integrations.huggingface.logits_processor import UnspoolLogitsProcessor

P = ParamSpec("P")


def processor(
    *rules: Transform | Pick,
    model: Any = None,
    tokenizer: Any = None,
    seed: int | Sequence[int] | None = None,
) -> UnspoolLogitsProcessor:
    """Rules of ours as a LogitsProcessor: transforms, and a pick last where it is to draw the token itself.

    `model` is their model, for rules that look at it (BasisAware, Grammar), and for knowing padding and rows
    that have ended; `tokenizer` is for rules about text. `seed` is for a pick: one number, or one for each
    row; None leaves it to torch's generator. It may serve one call of `generate` after another, assisted and
    prompt-lookup decoding included; outside of `generate`, `reset()` says that a new text begins.
    """
    TRANSFORMERS.imported("us.hf.processor")
    from unspool.integrations.huggingface.logits_processor import UnspoolLogitsProcessor as RuleProcessor

    return RuleProcessor(rules, model, tokenizer, seed)


def decoder(decoder: Decoder | str, tokenizer: Any = None) -> CustomGenerate:
    """Use any decoder as `custom_generate`; `generate` then also accepts `n`, `seed` and `stream_to`.

    Transforms and decoders that read text need `tokenizer` (Grammar, MBR's ChrF).
    """
    TRANSFORMERS.imported("us.hf.decoder")
    from unspool.integrations.huggingface.custom_generate import CustomGenerate

    return CustomGenerate(as_decoder(decoder), tokenizer)


def _as_custom_generate(kind: Callable[P, Decoder]) -> Callable[P, CustomGenerate]:
    def make(*args: P.args, **keywords: P.kwargs) -> CustomGenerate:
        return decoder(kind(*args, **keywords))

    make.__doc__ = f"`us.{getattr(kind, '__name__', '')}(…)` as `custom_generate`."
    return make


beam = _as_custom_generate(Beam)
beam_sample = _as_custom_generate(BeamSample)
constrained_beam = _as_custom_generate(ConstrainedBeam)
contrastive_search = _as_custom_generate(ContrastiveSearch)
diverse_beam = _as_custom_generate(DiverseBeam)
greedy = _as_custom_generate(Greedy)
mbr = _as_custom_generate(MBR)
sample = _as_custom_generate(Sample)
speculative = _as_custom_generate(Speculative)
stochastic_beam = _as_custom_generate(StochasticBeam)
