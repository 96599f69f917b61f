"""What vLLM finds under its entry point `vllm.logits_processors`: one class for both of its model runners.

vLLM loads it before it has chosen a runner, and each refuses classes of the other's kind. This one is of both
kinds, and is what the runner that makes it wants: V1 gives it a device, V2 the table of its requests.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unspool.integrations.loading import VLLM
from unspool.integrations.vllm.model_runners import V1BatchRows, V2RequestSlots
from unspool.integrations.vllm.sequences import SequenceSampler, request_decoder
from unspool.integrations.vllm.served_model import ServedModel

VLLM.imported("unspool's decoders in vLLM")

from vllm.logger import init_logger  # noqa: E402
from vllm.v1.sample.logits_processor import LogitsProcessor as ForV1  # noqa: E402


def _base_classes() -> tuple[type, ...]:
    """The classes that the runners of the installed version ask for."""
    try:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as ForV2
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("vllm."):
            raise
        return (ForV1,)
    return (ForV1, ForV2)


class UnspoolLogitsProcessor(*_base_classes()):  # type: ignore[misc]  # vLLM's classes are known when it is there
    """Draws the tokens of those requests that name a decoder; all others are vLLM's."""

    def __init__(self, vllm_config: Any, *given: Any) -> None:
        texts = SequenceSampler(ServedModel(vllm_config), init_logger("vllm.unspool").error)
        self._rows: Any
        if len(given) == 1:
            self._rows = V2RequestSlots(texts, given[0], drafts=vllm_config.speculative_config is not None)
        else:
            self._rows = V1BatchRows(texts)

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse a request whose decoder cannot be read, where it arrives."""
        request_decoder(sampling_params)

    def is_argmax_invariant(self) -> bool:
        """V1: no, so that it is called before anything that vLLM does to choose."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """V1: what has changed in the batch."""
        self._rows.update_state(batch_update)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """V2: a request comes."""
        ours: bool = self._rows.add_request(req_idx, sampling_params)
        return ours

    def apply(self, logits: Tensor, *context: Any) -> Tensor:
        """Both: (N, V) → (N, V)."""
        written: Tensor = self._rows.apply(logits, *context)
        return written
