"""The claims, one file each, in the order of the report."""

from unspool.lab.claim import Claim
from unspool.lab.claims import (
    attention_lengths,
    attention_losses,
    basis_aware_keeps,
    bidirectional_context,
    bottleneck_rank,
    contrastive_decoding,
    degeneration,
    exposure_bias,
    exposure_remedies,
    gradient_to_source,
    greedy_trigram,
    kerbs_against_softmax,
    key_elimination,
    large_beams,
    likelihood_trap,
    loop_rate,
    loss_shaping,
    model_size,
    norm_place,
    one_k,
    residual_identity,
    right_to_left,
    safe_threshold,
    second_sense,
    softmax_saturation,
    teacher_forcing,
    wider_senses,
)

CLAIMS: tuple[Claim, ...] = (
    # Why text degenerates
    degeneration.CLAIM,
    likelihood_trap.CLAIM,
    large_beams.CLAIM,
    greedy_trigram.CLAIM,
    loop_rate.CLAIM,
    # What to do about it in decoding
    one_k.CLAIM,
    safe_threshold.CLAIM,
    basis_aware_keeps.CLAIM,
    contrastive_decoding.CLAIM,
    model_size.CLAIM,
    # Output layers
    bottleneck_rank.CLAIM,
    second_sense.CLAIM,
    wider_senses.CLAIM,
    kerbs_against_softmax.CLAIM,
    # Networks
    bidirectional_context.CLAIM,
    gradient_to_source.CLAIM,
    attention_lengths.CLAIM,
    residual_identity.CLAIM,
    norm_place.CLAIM,
    softmax_saturation.CLAIM,
    key_elimination.CLAIM,
    # Training
    teacher_forcing.CLAIM,
    right_to_left.CLAIM,
    attention_losses.CLAIM,
    loss_shaping.CLAIM,
    exposure_bias.CLAIM,
    exposure_remedies.CLAIM,
)
