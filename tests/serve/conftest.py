import threading

import pytest
import torch

from unspool.models.transformer_lm import TransformerConfig
from unspool.serve.scheduler import Scheduler
from unspool.serve.shared_model import BatchCall


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


@pytest.fixture(scope="session")
def compiled_model():
    torch.manual_seed(0)
    shape = TransformerConfig(
        vocab_size=31, width=16, layers=2, heads=4, kv_heads=2, head_width=4, inner_width=20, context=60
    )
    model = shape.build().eval()
    model.engine = "compiled"
    return model


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
