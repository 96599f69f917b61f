"""llama.cpp by its C functions, which llama-cpp-python declares: batches of several sequences, its own samplers.

It has no beam search any more; beams are put together here from its parts, which cost it little: sequences
share their past, and the candidates of a step are found by NumPy.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.metadata import version

import llama_cpp
import numpy as np

from peers.conversation import converse
from peers.work import Work

GGML_TYPE_F32, GGML_TYPE_F16 = 0, 1


@llama_cpp.llama_log_callback
def _quiet(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None:
    """Say nothing."""


class LlamaCpp:
    version = f"llama-cpp-python {version('llama-cpp-python')}"

    def __init__(self, file: str, threads: int, context: int) -> None:
        llama_cpp.llama_log_set(_quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(
            file.encode(), llama_cpp.llama_model_default_params()
        )
        if not self.model:
            raise ValueError(f"llama.cpp cannot load {file}")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.threads, self.context = threads, context
        # Beside float32 weights the keys and values are float32, too, so that texts can be compared.
        self.cache_type = GGML_TYPE_F32 if llama_cpp.llama_model_ftype(self.model) == 0 else GGML_TYPE_F16
        self.sequences = cache(self._sequences)
        self.sequences(1, False)

    def _sequences(self, rows: int, shared: bool) -> Sequences:
        """Room for some sequences: each with cells of its own, or all in the same ones, to share a past."""
        how = llama_cpp.llama_context_default_params()
        how.n_ctx, how.n_batch, how.n_seq_max = self.context * rows, self.context * rows, rows
        how.n_threads = how.n_threads_batch = self.threads
        how.type_k = how.type_v = self.cache_type
        how.kv_unified = shared
        return Sequences(self.model, how, self.vocabulary)

    def generate(self, work: Work) -> list[list[int]]:
        if work.beams > 1:
            # Twice as many: the new past of every beam is laid beside the old ones before these are dropped.
            beams = self.sequences(2 * work.beams, True)
            return [_beam(beams, prompt, work.new, work.beams) for prompt in work.prompts]
        chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        if work.top_p is None:
            llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_greedy())
        else:
            llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_top_p(work.top_p, 1))
            llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_dist(0))
        try:
            return _sample(self.sequences(len(work.prompts), False), chain, work.prompts, work.new)
        finally:
            llama_cpp.llama_sampler_free(chain)


class Sequences:
    """A llama_context, and the batch that is filled anew for every call."""

    def __init__(self, model: int, how: llama_cpp.llama_context_params, vocabulary: int) -> None:
        self.context = llama_cpp.llama_init_from_model(model, how)
        if not self.context:
            raise ValueError("llama.cpp cannot make a context")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(how.n_batch, 0, 1)
        self.vocabulary = vocabulary

    def forget(self) -> None:
        llama_cpp.llama_memory_clear(self.memory, True)

    def read(self, pieces: list[list[int]], position: int) -> list[int]:
        """Read a piece of each sequence, from that position on; places in the batch of what follows each."""
        at, last = 0, []
        for row, piece in enumerate(pieces):
            for offset, token in enumerate(piece):
                self.batch.token[at] = token
                self.batch.pos[at] = position + offset
                self.batch.n_seq_id[at] = 1
                self.batch.seq_id[at][0] = row
                self.batch.logits[at] = offset == len(piece) - 1
                at += 1
            last.append(at - 1)
        self.batch.n_tokens = at
        if (status := llama_cpp.llama_decode(self.context, self.batch)) != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        return last

    def logp_NV(self, places: list[int]) -> np.ndarray:
        logits = [llama_cpp.llama_get_logits_ith(self.context, at) for at in places]
        logits_NV = np.stack([np.ctypeslib.as_array(row, (self.vocabulary,)) for row in logits])
        logits_NV -= logits_NV.max(axis=1, keepdims=True)
        logits_NV -= np.log(np.exp(logits_NV).sum(axis=1, keepdims=True))
        return logits_NV

    def reorder(self, parents: list[int]) -> None:
        """Give each row the past of its parent; cells are marked, not copied."""
        beams = len(parents)
        for row, parent in enumerate(parents):
            llama_cpp.llama_memory_seq_cp(self.memory, parent, beams + row, -1, -1)
        for row in range(beams):
            llama_cpp.llama_memory_seq_rm(self.memory, row, -1, -1)
            llama_cpp.llama_memory_seq_cp(self.memory, beams + row, row, -1, -1)
            llama_cpp.llama_memory_seq_rm(self.memory, beams + row, -1, -1)


def _sample(sequences: Sequences, chain: int, prompts: list[list[int]], new: int) -> list[list[int]]:
    if len(set(map(len, prompts))) > 1:
        raise ValueError("prompts of one length are expected")
    sequences.forget()
    texts: list[list[int]] = [[] for _ in prompts]
    position, pieces = 0, prompts
    while True:
        places = sequences.read(pieces, position)
        position += len(pieces[0])
        for text, at in zip(texts, places, strict=True):
            text.append(llama_cpp.llama_sampler_sample(chain, sequences.context, at))
        if len(texts[0]) == new:
            return texts
        pieces = [text[-1:] for text in texts]


def _beam(sequences: Sequences, prompt: list[int], new: int, beams: int) -> list[int]:
    sequences.forget()
    places = sequences.read([prompt], 0)
    sums_N, texts = np.zeros(1), [[]]
    for step in range(new):
        total_NV = sums_N[:, None] + sequences.logp_NV(places)
        best_K = np.argpartition(total_NV, -beams, axis=None)[-beams:]
        best_K = best_K[np.argsort(-total_NV.reshape(-1)[best_K])]
        sums_N = total_NV.reshape(-1)[best_K]
        parents, tokens = np.divmod(best_K, sequences.vocabulary)
        texts = [[*texts[parent], int(token)] for parent, token in zip(parents, tokens, strict=True)]
        if step + 1 == new:
            break
        sequences.reorder(parents.tolist())
        places = sequences.read([text[-1:] for text in texts], len(prompt) + step)
    return texts[0]


if __name__ == "__main__":
    converse(LlamaCpp)
