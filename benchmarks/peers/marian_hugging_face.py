"""Marian in Hugging Face, float32: what everybody is measured against."""

from __future__ import annotations

import torch
import transformers

from peers.conversation import converse
from peers.marian import END, PAD
from peers.work import Work


class HuggingFace:
    version = f"transformers {transformers.__version__}, torch {torch.__version__}"

    def __init__(self, folder: str, threads: int) -> None:
        torch.set_num_threads(threads)
        transformers.utils.logging.set_verbosity_error()
        self.model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()

    def generate(self, work: Work) -> list[list[int]]:
        sources = [[*prompt, END] for prompt in work.prompts]
        longest = max(map(len, sources))
        ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in sources])
        out = self.model.generate(
            ids,
            attention_mask=(ids != PAD).long(),
            max_new_tokens=work.new,
            do_sample=False,
            num_beams=work.beams,
        )
        return out[:, 1:].tolist()


if __name__ == "__main__":
    converse(HuggingFace)
