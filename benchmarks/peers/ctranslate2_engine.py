"""CTranslate2, in float32 or with int8 weights and activations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ctranslate2

from peers.conversation import converse
from peers.work import Work


class CTranslate2:
    version = f"ctranslate2 {ctranslate2.__version__}"

    def __init__(self, folder: str, threads: int, precision: str) -> None:
        self.generator = ctranslate2.Generator(folder, intra_threads=threads, compute_type=precision)
        self.words = json.loads((Path(folder) / "vocabulary.json").read_text(encoding="utf-8"))

    def generate(self, work: Work) -> list[list[int]]:
        results = self.generator.generate_batch(
            [[self.words[i] for i in prompt] for prompt in work.prompts],
            max_length=work.new,
            min_length=work.new,
            include_prompt_in_result=False,
            end_token=[],
            **how(work),
        )
        return [result.sequences_ids[0] for result in results]


def how(work: Work) -> dict[str, Any]:
    if work.top_p is not None:
        return {"sampling_topk": 0, "sampling_topp": work.top_p}
    return {"beam_size": work.beams}


if __name__ == "__main__":
    converse(CTranslate2)
