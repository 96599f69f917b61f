"""CTranslate2, in float32 or with int8 weights and activations."""

from __future__ import annotations

import json
from pathlib import Path

import ctranslate2

from peers.conversation import converse
from peers.work import BEAMS, TOP_P, Work

HOW = {
    "greedy": {"sampling_topk": 1},
    "top-p 0.9": {"sampling_topk": 0, "sampling_topp": TOP_P},
    "beam 4": {"beam_size": BEAMS},
}


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
            **HOW[work.decoder],
        )
        return [result.sequences_ids[0] for result in results]


if __name__ == "__main__":
    converse(CTranslate2)
