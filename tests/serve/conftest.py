import threading
from functools import partial

import pytest
import torch

import unspool as us
from unspool.models.transformer_lm import TransformerConfig
from unspool.serve.scheduler import BatchCall, Scheduler


@pytest.fixture
def scheduler_of():
    """Engines, which are closed when the test is over."""
    made = []

    def make(model):
        made.append(Scheduler(model))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def small_transformer(engine):
    torch.manual_seed(0)
    shape = TransformerConfig(
        vocab_size=31, width=16, layers=2, heads=4, kv_heads=2, head_width=4, inner_width=20, context=400
    )
    model = shape.build().eval()
    model.engine = engine
    return model


def small_llama():
    transformers = pytest.importorskip("transformers")
    from unspool.integrations.huggingface.loading import from_huggingface

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = transformers.LlamaConfig(
        vocab_size=31,
        num_key_value_heads=2,
        max_position_embeddings=400,
        initializer_range=0.5,
        **sizes,
        **ends,
    )
    return from_huggingface(transformers.LlamaForCausalLM(config).eval())


MODELS = {
    "compiled": lambda: small_transformer("compiled"),
    "torch": lambda: small_transformer("torch"),
    "transformers": small_llama,
}


@pytest.fixture(scope="session")
def compiled_model():
    return small_transformer("compiled")


@pytest.fixture(params=MODELS, scope="session")
def batched_model(request):
    """Models whose requests share batches."""
    return MODELS[request.param]()


@pytest.fixture
def assert_same(batched_model):
    """Equal to the bit with the compiled engine; otherwise the same texts, and numbers up to rounding."""

    def numbers(output):
        return [*output.logps, *output.scores, output.total or 0.0]

    def check(found, expected):
        if batched_model.engine == "compiled":
            assert found == expected
            return
        found, expected = ([it] if isinstance(it, us.Output) else it for it in (found, expected))
        assert [it.tokens for it in found] == [it.tokens for it in expected]
        for one, other in zip(found, expected, strict=True):
            assert numbers(one) == pytest.approx(numbers(other), rel=1e-4, abs=1e-4)
            assert (one.finish_reason, one.seed) == (other.finish_reason, other.seed)

    return check


@pytest.fixture
def assert_close(batched_model):
    exact = batched_model.engine == "compiled"
    return partial(torch.testing.assert_close, rtol=0 if exact else 1e-4, atol=0 if exact else 1e-4)


class Gate:
    """Holds an engine in one call until it is opened: what comes meanwhile is answered in one round."""

    def __init__(self, engine):
        self._held, self._open = threading.Event(), threading.Event()
        self.engine, self.asker = engine, engine.open_request()
        engine.submit(BatchCall(self.asker, self._wait))
        assert self._held.wait(10)

    def _wait(self, batch):
        self._held.set()
        assert self._open.wait(10)

    def opened_when(self, asking):
        """Open it when so many wait, and leave."""
        with self.engine._change:
            assert self.engine._change.wait_for(lambda: len(list(self.engine._queue)) >= asking, 10)
        self.asker.close()
        self._open.set()


@pytest.fixture
def gate():
    return Gate
