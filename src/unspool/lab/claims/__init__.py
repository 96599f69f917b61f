"""Claims and checks by subject, named as the functions that measure them, in the order of the report."""

from unspool.lab.claim import Experiment
from unspool.lab.claims import attention, degeneration, heads, loops, networks, training, truncation

CLAIMS: tuple[Experiment, ...] = (
    # Why text degenerates
    degeneration.degeneration,
    degeneration.incoherent_sampling,
    degeneration.likelihood_trap,
    degeneration.large_beams,
    loops.greedy_trigram,
    loops.loop_rate,
    # What to do about it in decoding
    truncation.one_k,
    truncation.safe_threshold,
    truncation.basis_aware_theorem,
    truncation.basis_aware_keeps,
    degeneration.contrastive_decoding,
    degeneration.model_size,
    # Output layers
    heads.bottleneck_rank,
    heads.second_sense,
    heads.wider_senses,
    heads.kerbs_against_softmax,
    # Networks
    networks.bidirectional_context,
    attention.gradient_to_source,
    attention.attention_lengths,
    networks.residual_identity,
    networks.norm_place,
    attention.softmax_saturation,
    attention.key_elimination,
    # Training
    training.teacher_forcing,
    training.right_to_left,
    attention.attention_loss_bounds,
    attention.attention_losses,
    attention.loss_shaping,
    training.exposure_bias,
    training.exposure_remedies,
)
