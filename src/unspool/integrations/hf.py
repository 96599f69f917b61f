"""`us.hf`: use the decoders of this package in `generate` of Hugging Face transformers.

    import unspool as us

    basis_aware = us.hf.processor(us.BasisAware(0.1), model=model, seed=1)
    model.generate(**inputs, logits_processor=[basis_aware], max_new_tokens=60)
    model.generate(**inputs, custom_generate=us.hf.beam(5, length_penalty=us.GNMT(0.6)), max_new_tokens=60)
    model.generate(**inputs, custom_generate=us.hf.sample(us.TopP(0.9)), max_new_tokens=60, seed=1)

`us.from_huggingface` does the reverse: it wraps a transformers model for `us.generate` and everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

from unspool.decode import search
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
    """A LogitsProcessor that applies transforms and, if the last rule is a pick, draws the token.

    `model` is the transformers model. Rules that use the model (BasisAware, Grammar) need it, and it tells
    padding and finished rows. `tokenizer` is for rules about text. `seed` is for a pick: one number, or one
    per row; None uses torch's generator. The processor can be reused for several `generate` calls, including
    assisted and prompt-lookup decoding; outside `generate`, call `reset()` before a new text.
    """
    TRANSFORMERS.require("us.hf.processor")
    from unspool.integrations.huggingface.logits_processor import UnspoolLogitsProcessor

    return UnspoolLogitsProcessor(rules, model, tokenizer, seed)


def decoder(decoder: Decoder | str | None, tokenizer: Any = None) -> CustomGenerate:
    """Use any decoder as `custom_generate`; `generate` then also accepts `n`, `seed` and `stream_to`.

    Transforms and decoders that read text need `tokenizer` (Grammar, MBR's ChrF).
    """
    TRANSFORMERS.require("us.hf.decoder")
    from unspool.integrations.huggingface.custom_generate import CustomGenerate

    return CustomGenerate(as_decoder(decoder), tokenizer)


def _as_custom_generate(kind: Callable[P, Decoder]) -> Callable[P, CustomGenerate]:
    def make(*args: P.args, **keywords: P.kwargs) -> CustomGenerate:
        return decoder(kind(*args, **keywords))

    make.__doc__ = f"`us.{getattr(kind, '__name__', '')}(…)` as `custom_generate`."
    return make


beam = _as_custom_generate(search.Beam)
beam_sample = _as_custom_generate(search.BeamSample)
constrained_beam = _as_custom_generate(search.ConstrainedBeam)
contrastive_search = _as_custom_generate(search.ContrastiveSearch)
diverse_beam = _as_custom_generate(search.DiverseBeam)
exact_search = _as_custom_generate(search.ExactSearch)
greedy = _as_custom_generate(search.Greedy)
mbr = _as_custom_generate(search.MBR)
sample = _as_custom_generate(search.Sample)
speculative = _as_custom_generate(search.Speculative)
stochastic_beam = _as_custom_generate(search.StochasticBeam)
