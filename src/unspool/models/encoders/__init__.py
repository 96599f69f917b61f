"""Encoders: tokens to one vector each, which knows its neighbours on both sides."""

from unspool.models.encoders.rnn_encoder import RNNEncoder, RNNEncoderConfig
from unspool.models.encoders.transformer_encoder import TransformerEncoder, TransformerEncoderConfig

EncoderConfig = RNNEncoderConfig | TransformerEncoderConfig
"""Any of the settings in ENCODERS."""

ENCODERS: dict[str, type[EncoderConfig]] = {
    "rnn": RNNEncoderConfig,
    "transformer": TransformerEncoderConfig,
}

__all__ = [
    "ENCODERS",
    "EncoderConfig",
    "RNNEncoder",
    "RNNEncoderConfig",
    "TransformerEncoder",
    "TransformerEncoderConfig",
]
