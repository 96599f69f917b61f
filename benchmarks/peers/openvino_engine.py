"""OpenVINO GenAI: a model exported by optimum-intel in float32, or a GGUF file."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai

from peers.conversation import converse
from peers.work import Work

EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
}
"""By default activations and the KV cache are rounded to 8 bits."""


class OpenVINO:
    version = f"openvino-genai {genai.__version__}"

    def __init__(self, model: str, threads: int, exact: bool) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False  # rounds repeat their prompts
        options = {"scheduler_config": scheduler, "INFERENCE_NUM_THREADS": threads}
        self.pipeline = genai.LLMPipeline(model, "CPU", **options, **(EXACT if exact else {}))

    def generate(self, work: Work) -> list[list[int]]:
        ids = np.array(work.prompts, np.int64)
        inputs = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
        config = genai.GenerationConfig(
            max_new_tokens=work.new, min_new_tokens=work.new, ignore_eos=True, **how(work)
        )
        tokens = self.pipeline.generate(inputs, config).tokens
        return [list(row) for row in tokens]


def how(work: Work) -> dict[str, Any]:
    if work.top_p is not None:
        return {"do_sample": True, "top_p": work.top_p, "temperature": 1.0, "rng_seed": 0}
    if work.beams > 1:
        never = genai.StopCriteria.NEVER
        return {"num_beams": work.beams, "length_penalty": 0.0, "stop_criteria": never}
    return {"do_sample": False}


if __name__ == "__main__":
    converse(OpenVINO)
