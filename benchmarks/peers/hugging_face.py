"""Hugging Face generate, float32: what everybody is measured against."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from peers.conversation import converse
from peers.work import Work


class HuggingFace:
    version = f"transformers {transformers.__version__}, torch {torch.__version__}"

    def __init__(self, folder: str, threads: int) -> None:
        torch.set_num_threads(threads)
        transformers.utils.logging.set_verbosity_error()
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model.eval()

    def generate(self, work: Work) -> list[list[int]]:
        longest = max(map(len, work.prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in work.prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in work.prompts])
        torch.manual_seed(0)
        out = self.model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=work.new,
            min_new_tokens=work.new,
            pad_token_id=0,
            **how(work),
        )
        return out[:, longest:].tolist()


def how(work: Work) -> dict[str, Any]:
    if work.top_p is not None:
        return {"do_sample": True, "top_p": work.top_p, "top_k": 0}
    return {"do_sample": False, "num_beams": work.beams, "length_penalty": 0.0}


if __name__ == "__main__":
    converse(HuggingFace)
