"""What the page may ask; unknown fields fail, and every size is bounded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from unspool.serve.request_fields import Fields, TokenId, Whole

Decoder = Annotated[str, Field(min_length=1, max_length=1000)]
Prompt = (
    Annotated[str, Field(min_length=1, max_length=20_000)]
    | Annotated[list[TokenId], Field(min_length=1, max_length=4096)]
)


class PromptFields(Fields):
    """What every question names."""

    model: str = Field(max_length=1000)
    prompt: Prompt


class NextTokenQuestion(PromptFields):
    """POST /playground/next-token."""

    tokens: list[TokenId] = Field([], max_length=128)
    """What was chosen after the prompt."""
    decoders: list[Decoder] = Field([], max_length=8)
    count: int = Field(40, ge=1, le=100)


class BeamTreeQuestion(PromptFields):
    """POST /playground/beam-tree."""

    decoder: Decoder = "Beam(4)"
    max_tokens: int = Field(12, ge=1, le=64)
    seed: Whole = 0


class AttentionQuestion(PromptFields):
    """POST /playground/attention."""

    decoder: Decoder = "Greedy()"
    max_tokens: int = Field(0, ge=0, le=64)
    """How much of what the decoder says is looked at, too."""
    kind: Literal["self", "encoder", "decoder", "source"] | None = None
    layer: int = Field(0, ge=0, le=1000)
