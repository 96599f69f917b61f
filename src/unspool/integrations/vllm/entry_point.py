"""vLLM entry point `vllm.logits_processors`: one class for both model runners.

vLLM loads it before it chooses a runner, and each runner rejects the class of the other. This class derives
from both and adapts to its constructor arguments: V1 passes a device, V2 the table of requests.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unspool.integrations.loading import VLLM
from unspool.integrations.vllm.model_runners import V1BatchRows, V2RequestSlots
from unspool.integrations.vllm.sequences import SequenceSampler, request_decoder
from unspool.integrations.vllm.served_model import ServedModel

VLLM.require("unspool's decoders in vLLM")

from vllm.logger import init_logger  # noqa: E402
from vllm.v1.sample.logits_processor import LogitsProcessor as ForV1  # noqa: E402


def _base_classes() -> tuple[type, ...]:
    """The logits processor classes of the installed version."""
    try:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as ForV2
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("vllm."):
            raise
        return (ForV1,)
    return (ForV1, ForV2)


class UnspoolLogitsProcessor(*_base_classes()):  # type: ignore[misc]  # vLLM is optional
    """Draws the tokens of requests that name a decoder; vLLM samples all others."""

    def __init__(self, vllm_config: Any, *runner_arguments: Any) -> None:
        sampler = SequenceSampler(ServedModel(vllm_config), init_logger("vllm.unspool").error)
        self._rows: Any
        if len(runner_arguments) == 1:
            self._rows = V2RequestSlots(
                sampler, runner_arguments[0], speculative=vllm_config.speculative_config is not None
            )
        else:
            self._rows = V1BatchRows(sampler)

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Reject a request with an invalid decoder when it arrives."""
        request_decoder(sampling_params)

    def is_argmax_invariant(self) -> bool:
        """V1: False, so that vLLM calls it before sampling."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """V1: follow changes of the batch."""
        self._rows.update_state(batch_update)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """V2: add a request."""
        return self._rows.add_request(req_idx, sampling_params)

    def apply(self, logits: Tensor, *context: Any) -> Tensor:
        """Both: logits (N, V) → logits (N, V)."""
        return self._rows.apply(logits, *context)
