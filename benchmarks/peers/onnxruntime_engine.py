"""ONNX Runtime GenAI, with a model that its builder wrote in float32, int8 or int4."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnxruntime_genai as genai

from peers.conversation import converse
from peers.work import Work


class OnnxRuntime:
    version = f"onnxruntime-genai {genai.__version__}"

    def __init__(self, folder: str, threads: int) -> None:
        config = genai.Config(folder)
        session = {"session_options": {"intra_op_num_threads": threads}}
        config.overlay(json.dumps({"model": {"decoder": session}}))
        self.model = genai.Model(config)

    def generate(self, work: Work) -> list[list[int]]:
        ids = np.array(work.prompts, np.int32)
        rows, length = ids.shape
        total = length + work.new
        params = genai.GeneratorParams(self.model)
        # An end-of-text token cannot be generated before min_length.
        params.set_search_options(batch_size=rows, max_length=total, min_length=total, **how(work))
        generator = genai.Generator(self.model, params)
        generator.append_tokens(ids)
        while not generator.is_done():
            generator.generate_next_token()
        return [generator.get_sequence(row)[length:].tolist() for row in range(rows)]


def how(work: Work) -> dict[str, Any]:
    if work.top_p is not None:
        return {"do_sample": True, "top_p": work.top_p, "top_k": 0, "temperature": 1.0, "random_seed": 0}
    if work.beams > 1:
        return {"do_sample": False, "num_beams": work.beams, "length_penalty": 0.0, "early_stopping": False}
    return {"do_sample": False, "num_beams": 1}


if __name__ == "__main__":
    converse(OnnxRuntime)
