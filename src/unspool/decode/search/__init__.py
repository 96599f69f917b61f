"""Decoders: sampling, greedy, beam search and its variants, exact, contrastive, speculative, MBR and masked
decoding."""

from unspool.decode.search.beam import Beam, DiverseBeam
from unspool.decode.search.constrained_beam import ConstrainedBeam
from unspool.decode.search.contrastive_search import ContrastiveSearch
from unspool.decode.search.drafts import PromptLookup as PromptLookup
from unspool.decode.search.exact_search import ExactSearch
from unspool.decode.search.masked_decoding import MaskedDiffusion, MaskPredict
from unspool.decode.search.mbr import MBR, ChrF, TokenF1
from unspool.decode.search.sampling import Greedy, Sample
from unspool.decode.search.speculative import Speculative as Speculative
from unspool.decode.search.stochastic_beam import BeamSample, StochasticBeam

# Speculative is missing: it may contain a model, which a string cannot describe.
SEARCHES: dict[str, type] = {
    "Beam": Beam,
    "BeamSample": BeamSample,
    "ConstrainedBeam": ConstrainedBeam,
    "ContrastiveSearch": ContrastiveSearch,
    "DiverseBeam": DiverseBeam,
    "ExactSearch": ExactSearch,
    "Greedy": Greedy,
    "MBR": MBR,
    "MaskPredict": MaskPredict,
    "MaskedDiffusion": MaskedDiffusion,
    "Sample": Sample,
    "StochasticBeam": StochasticBeam,
}
UTILITIES: dict[str, type] = {"ChrF": ChrF, "TokenF1": TokenF1}
