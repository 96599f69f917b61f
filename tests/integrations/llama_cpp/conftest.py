"""A small Llama in a GGUF file; `make llama` tests with the real library."""

import importlib.util
from typing import Any

import pytest

HERE = importlib.util.find_spec("llama_cpp") is not None


@pytest.fixture(scope="session")
def library() -> Any:
    if not HERE:
        pytest.skip("llama-cpp-python is not installed here: make llama has it")
    import llama_cpp

    return llama_cpp
