"""The tokens that begin and end what an encoder–decoder of transformers reads and writes.

Their settings say it in several places: `generation_config` first, then `config`; an answer begins with the
decoder's own start token, where there is one, else with BOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unspool.models.sources import Ends

if TYPE_CHECKING:
    from unspool.protocols import Text


@dataclass(frozen=True)
class SpecialTokens(Ends):
    """Where an answer begins, and where a text ends."""

    @classmethod
    def of(cls, model: Any, text: Text | None) -> SpecialTokens:  # type: ignore[override]
        """From the settings of a model, or else from its text."""
        eos = ending_ids(model) or (text.eos_ids if text is not None else frozenset())
        bos = stated(model, "decoder_start_token_id")
        bos = stated(model, "bos_token_id") if bos is None else bos
        if bos is None or not eos:
            raise ValueError(
                f"the settings of this {type(model).__name__} do not say which token begins an answer "
                "(decoder_start_token_id) and which ends it (eos_token_id): set them in its generation_config"
            )
        return cls(bos, eos)

    def source(self, prompt: Sequence[int]) -> list[int]:
        """x₁ … xₙ EOS: EOS is written where it is missing, and nothing is taken off."""
        ids = list(prompt)
        return ids if ids[-1] in self.eos else [*ids, min(self.eos)]


def stated(model: Any, name: str) -> Any:
    """A setting of `generate`, or else of the model; None where neither has it."""
    for settings in (model.generation_config, model.config):
        value = getattr(settings, name, None)
        if value is not None:
            return value
    return None


def ending_ids(model: Any) -> frozenset[int]:
    """The tokens that end a text."""
    return ids(stated(model, "eos_token_id"))


def ids(value: Any) -> frozenset[int]:
    """Their settings have one token, several, or none."""
    if value is None:
        return frozenset()
    found = value if isinstance(value, list | tuple) else [value]
    return frozenset(token for token in found if isinstance(token, int) and not isinstance(token, bool))
