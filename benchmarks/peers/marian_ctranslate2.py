"""Marian in CTranslate2, float32."""

from __future__ import annotations

import ctranslate2

from peers.conversation import converse
from peers.marian import END
from peers.work import Work


class CTranslate2:
    version = f"ctranslate2 {ctranslate2.__version__}"

    def __init__(self, folder: str, threads: int) -> None:
        self.translator = ctranslate2.Translator(folder, intra_threads=threads, compute_type="float32")

    def generate(self, work: Work) -> list[list[int]]:
        results = self.translator.translate_batch(
            [[str(token) for token in (*prompt, END)] for prompt in work.prompts],
            max_decoding_length=work.new,
            beam_size=work.beams,
        )
        return [[int(token) for token in result.hypotheses[0]] for result in results]


if __name__ == "__main__":
    converse(CTranslate2)
