"""What every model of transformers has as a StepModel: its size, its output matrix, and what a pass says.

    log p = log_softmax(z),   log_norm = logsumexp(z),   z the logits that `forward` returns

What the head reads is taken at the head's door (a hook for the time of one pass): no family's way of getting
there, such as a scale before the head or a norm inside the decoder, has to be known.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unspool.adapters.huggingface.special_tokens import ending_ids
from unspool.heads.softmax import normalised
from unspool.models.decoding_mode import decodes
from unspool.protocols import Abilities, Step

if TYPE_CHECKING:
    from unspool.protocols import Text

ENGINE = "transformers"


class WrappedModel(nn.Module, Abilities):
    """A model of transformers; a subclass says how it reads prompts."""

    def __init__(self, model: Any, text: Text | None) -> None:
        super().__init__()
        self.model = model
        self.text = text

    @property
    def config(self) -> Any:
        """Their settings."""
        return self.model.config

    @property
    def head(self) -> Any:
        """Their output layer; None if the model shows none, or shows its embedding instead (FSMT)."""
        found = self.model.get_output_embeddings()
        return None if isinstance(found, nn.Embedding) else found

    @property
    def engine(self) -> str:
        """Who runs the steps."""
        return ENGINE

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        where: torch.device = next(self.model.parameters()).device
        return where

    @cached_property
    def vocab_size(self) -> int:
        """Width of the logits."""
        shown = self.model.get_output_embeddings()
        size: int = self._settings.vocab_size if shown is None else shown.weight.shape[0]
        return size

    @property
    def eos_ids(self) -> frozenset[int]:
        """The tokenizer's, or else those of their generation_config or config."""
        if self.text is not None:
            return self.text.eos_ids
        return frozenset(token for token in ending_ids(self.model) if 0 <= token < self.vocab_size)

    @property
    def context(self) -> int | None:
        """The positions that it has, or was trained for; None where its settings name none."""
        found: int | None = getattr(self._settings, "max_position_embeddings", None)
        return None if found is None or found < 1 else found

    @property
    def rewindable(self) -> Any:
        """Itself, unless it is recurrent: what such a model has read, it cannot forget."""
        return None if self._recurrent else self

    @property
    def output_matrix(self) -> Tensor | None:
        """Their output layer's, where the logits are its products with what it reads, but for a bias."""
        weight: Tensor | None = self.head.weight if self.head is not None and self._is_linear else None
        return weight

    def run(self, **inputs: Any) -> tuple[Any, Tensor | None]:
        """What their `forward` returns, and what the head has read: (N, T, D)."""
        read: list[Tensor] = []
        head = self.head
        if head is None:
            return self.model(**inputs, return_dict=True), None
        hook = head.register_forward_pre_hook(lambda _, given: read.append(given[0]))
        try:
            out = self.model(**inputs, return_dict=True)
        finally:
            hook.remove()
        return out, read[-1] if read else None

    @property
    def _settings(self) -> Any:
        """Those of the part that writes text, where a model has others, too."""
        return self.model.config.get_text_config(decoder=True)

    @cached_property
    def _takes(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.model.forward).parameters)

    @property
    def _recurrent(self) -> bool:
        return bool(self.model._is_stateful)

    @cached_property
    def _is_linear(self) -> bool:
        """Whether z = s·W h + b with one s for all h.

        The model itself is asked: families hide what they do to logits (caps, scales) in many places.
        """
        # Half precision rounds as much away as a cap far above the logits takes: it is asked for by its name.
        two = None if getattr(self._settings, "final_logit_softcapping", None) else self._probe()
        if two is None:
            return False
        logits_2V, hidden_2D = two
        change_V = (logits_2V[0] - logits_2V[1]).double()
        product_V = (self.head.weight.detach().double() @ (hidden_2D[0] - hidden_2D[1]).double()).to(change_V)
        if change_V.shape != product_V.shape:
            return False
        scale = (change_V @ product_V) / (product_V @ product_V)
        error = (change_V - scale * product_V).abs().max()
        allowed = 1e-4 if logits_2V.dtype == torch.float32 else 1e-2
        return bool(error <= allowed * change_V.abs().max())

    @decodes
    def _probe(self) -> tuple[Tensor, Tensor] | None:
        """The logits after two short texts, and what the head has read."""
        raise NotImplementedError


def said(logits_NV: Tensor, hidden_ND: Tensor | None, attention: Tensor | None = None) -> Step:
    """One Step of logits."""
    logits_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    return Step(normalised(logits_NV), hidden_ND, attention, log_norm_N=logits_NV.logsumexp(-1))


def flat(out: Any, hidden_NTD: Tensor | None) -> Step:
    """A Step of every place of every row."""
    hidden = None if hidden_NTD is None else hidden_NTD.flatten(0, 1)
    return said(out.logits.flatten(0, 1), hidden)


def last(out: Any, hidden_NTD: Tensor | None) -> Step:
    """A Step of every row's last place."""
    return said(out.logits[:, -1], None if hidden_NTD is None else hidden_NTD[:, -1])
