"""Write a GGUF file in one of llama.cpp's mixtures of types: python -m peers.llama_quantise SOURCE TARGET q4_k_m"""

from __future__ import annotations

import ctypes
import sys

import llama_cpp

TYPES = {"q4_k_m": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M, "q6_k": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K}


def quantise(source: str, target: str, kind: str) -> None:
    how = llama_cpp.llama_model_quantize_default_params()
    how.ftype = TYPES[kind]
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(how)) != 0:
        raise ValueError(f"llama.cpp cannot write {source} as {kind}")


if __name__ == "__main__":
    quantise(*sys.argv[1:])
