"""The claims, one file each, in the order of the report."""

from unspool.lab.claim import Claim
from unspool.lab.claims import (
    gradient_to_source,
    greedy_trigram,
    key_elimination,
    loop_rate,
    softmax_saturation,
    teacher_forcing,
)

CLAIMS: tuple[Claim, ...] = (
    teacher_forcing.CLAIM,
    softmax_saturation.CLAIM,
    gradient_to_source.CLAIM,
    key_elimination.CLAIM,
    greedy_trigram.CLAIM,
    loop_rate.CLAIM,
)
