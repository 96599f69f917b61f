"""The claims, one file each, in the order of the report."""

from unspool.lab.claim import Claim
from unspool.lab.claims import (
    basis_aware_keeps,
    bottleneck_rank,
    gradient_to_source,
    greedy_trigram,
    kerbs_against_softmax,
    key_elimination,
    loop_rate,
    safe_threshold,
    second_sense,
    softmax_saturation,
    teacher_forcing,
    wider_senses,
)

CLAIMS: tuple[Claim, ...] = (
    safe_threshold.CLAIM,
    basis_aware_keeps.CLAIM,
    bottleneck_rank.CLAIM,
    second_sense.CLAIM,
    wider_senses.CLAIM,
    kerbs_against_softmax.CLAIM,
    teacher_forcing.CLAIM,
    softmax_saturation.CLAIM,
    gradient_to_source.CLAIM,
    key_elimination.CLAIM,
    greedy_trigram.CLAIM,
    loop_rate.CLAIM,
)
