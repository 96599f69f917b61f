"""SmolLM2 in a float32 GGUF file; `make llama` tests with the real library."""

import ctypes
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from unspool.models.loading.model_names import package_file

HERE = importlib.util.find_spec("llama_cpp") is not None


@pytest.fixture(scope="session")
def library() -> Any:
    if not HERE:
        pytest.skip("llama-cpp-python is not installed here: make llama has it")
    import llama_cpp

    return llama_cpp


@pytest.fixture(scope="session")
def file(library: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 in float32, dequantised by llama.cpp from its package."""
    path = tmp_path_factory.mktemp("llama") / "f32.gguf"
    params = library.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = library.LLAMA_FTYPE_ALL_F32, True, 1
    source = str(package_file("smollm2")).encode()
    assert library.llama_model_quantize(source, str(path).encode(), ctypes.byref(params)) == 0
    return path
