"""Fakes of vLLM 0.32's two logits processor interfaces, and the built-in model as a Hugging Face folder.

`make test-vllm` tests with the real vLLM (test_real_engine.py).
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import unspool as us
from unspool.integrations.vllm.sequences import SequenceSampler
from unspool.integrations.vllm.served_model import ServedModel

EOS = 2


def params(decoder: Any = None, **others: Any) -> SimpleNamespace:
    """A fake SamplingParams."""
    defaults = {
        "extra_args": None if decoder is None else {"unspool": decoder},
        "seed": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "min_tokens": 0,
        "max_tokens": 16,
        "logit_bias": None,
        "bad_words": [],
        "allowed_token_ids": None,
        "structured_outputs": None,
        "all_stop_token_ids": {EOS},
        "eos_token_id": EOS,
    }
    return SimpleNamespace(**{**defaults, **others})


def served(folder: Any, **others: Any) -> SimpleNamespace:
    """A fake VllmConfig."""
    defaults = {
        "model": str(folder),
        "tokenizer": str(folder),
        "revision": None,
        "tokenizer_revision": None,
        "dtype": torch.float32,
        "max_model_len": 256,
        "get_vocab_size": lambda: 2048,
    }
    return SimpleNamespace(model_config=SimpleNamespace(**{**defaults, **others}), speculative_config=None)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The built-in language model as a Hugging Face folder."""
    path = tmp_path_factory.mktemp("served") / "bible"
    us.save(us.load("bible"), path, format="huggingface")
    return path


@pytest.fixture(scope="session")
def model(folder: Any) -> Any:
    return us.load(folder, engine="torch")


@pytest.fixture
def config(folder: Any) -> SimpleNamespace:
    return served(folder)


@pytest.fixture
def log() -> list[str]:
    """The reported errors."""
    return []


@pytest.fixture
def texts(config: Any, log: list[str]) -> SequenceSampler:
    return SequenceSampler(ServedModel(config), log.append)


class Texts:
    """Requests of a fake engine that computes logits with a native model and takes the argmax of each row."""

    params, served, eos = staticmethod(params), staticmethod(served), EOS

    def __init__(self, model: Any, prompts: list[list[int]]) -> None:
        self.model, self.prompts = model, prompts
        self.tokens: list[list[int]] = [[] for _ in prompts]

    def logits(self, which: list[int]) -> torch.Tensor:
        """(N, V): what the model says after these texts, in this order."""
        step, _ = self.model.start([(*self.prompts[it], *self.tokens[it]) for it in which])
        return step.logp_NV + step.log_norm_N[:, None]

    def expected(self, decoder: str, seed: int, which: int, count: int) -> list[int]:
        """The tokens of `us.generate` for the same prompt."""
        output = us.generate(
            self.model, self.prompts[which], us.parse(decoder), max_new_tokens=count, seed=seed
        )
        return list(output.tokens)


@pytest.fixture
def engine(model: Any) -> Texts:
    prompts = ["In the beginning", "And it came to pass, that", "The LORD said unto Moses", "Blessed are"]
    return Texts(model, [list(model.tokenizer.encode(one)) for one in prompts])
