"""vLLM on a CPU, in float32, compiled as it is by default."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # its memory is then that of this process
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_PLUGINS": "",
}

import torch
from vllm import LLM, SamplingParams
from vllm.sampling_params import BeamSearchParams

from peers.conversation import converse
from peers.work import Work

MAX_ROWS = 8


class VLLM:
    version = f"vllm {version('vllm-cpu')}, torch {torch.__version__}"

    def __init__(self, folder: str, threads: int, context: int) -> None:
        torch.set_num_threads(threads)
        self.llm = LLM(
            folder,
            dtype="float32",
            max_model_len=context,
            max_num_seqs=MAX_ROWS,
            enable_prefix_caching=False,  # rounds repeat their prompts
            seed=0,
        )

    def generate(self, work: Work) -> list[list[int]]:
        prompts: list[Any] = [{"prompt_token_ids": prompt} for prompt in work.prompts]
        if work.beams > 1:
            beams = BeamSearchParams(
                beam_width=work.beams, max_tokens=work.new, ignore_eos=True, length_penalty=0.0
            )
            answers = self.llm.beam_search(prompts, beams)
            starts = map(len, work.prompts)
            return [answer.sequences[0].tokens[start:] for answer, start in zip(answers, starts, strict=True)]
        sampled = {"temperature": 0.0} if work.top_p is None else {"temperature": 1.0, "top_p": work.top_p}
        params = SamplingParams(max_tokens=work.new, ignore_eos=True, **sampled)
        answers = self.llm.generate(prompts, params, use_tqdm=False)
        return [list(answer.outputs[0].token_ids) for answer in answers]


if __name__ == "__main__":
    converse(VLLM)
