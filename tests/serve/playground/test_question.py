import asyncio
import threading

import pytest
import torch

from unspool.serve.api_error import ApiError
from unspool.serve.page.routes import Question
from unspool.serve.shared_model import DeadlinePassed
from unspool.serve.worker_pool import QueueFull, WorkerPool
from unspool.testing import random_table


class Client:
    """A request whose client goes away when it is told to."""

    def __init__(self):
        self.gone = asyncio.Event()

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}


def answer(engine, work, **options):
    async def main():
        return await Question(engine, WorkerPool(1, 0), work, **options).answer(Client())

    return asyncio.run(main())


def test_a_function_of_the_shared_model_is_answered(engine_of):
    model = random_table(5, seed=1)
    engine = engine_of(model)
    found = answer(engine, lambda shared: shared.start([[1]])[0].logp_NV)
    torch.testing.assert_close(found, model.start([[1]])[0].logp_NV)
    assert answer(engine, lambda shared: shared.with_model(lambda it: it is model))
    with engine._change:
        assert engine._change.wait_for(lambda: not engine._askers, 10)


def test_errors_cross_over(engine_of):
    def wrong(shared):
        raise ValueError("so it is")

    with pytest.raises(ValueError, match="so it is"):
        answer(engine_of(random_table(5, seed=1)), wrong)


def test_time_is_limited(engine_of):
    with pytest.raises(DeadlinePassed):
        answer(engine_of(random_table(5, seed=1)), lambda shared: shared.start([[1]]), seconds=-1)


def test_a_client_that_goes_away_ends_it(engine_of):
    engine, began = engine_of(random_table(5, seed=1)), threading.Event()

    def endless(shared):
        step, state = shared.start([[1]])
        began.set()
        while True:
            step, state = shared.step(state, step.logp_NV.argmax(-1))

    async def main():
        client = Client()
        task = asyncio.create_task(Question(engine, WorkerPool(1, 0), endless).answer(client))
        assert await asyncio.to_thread(began.wait, 10)
        client.gone.set()
        with pytest.raises(ApiError, match="given up"):
            await task

    asyncio.run(main())
    with engine._change:
        assert engine._change.wait_for(lambda: not engine._askers, 10)


def test_no_more_wait_than_may(engine_of):
    engine, free = engine_of(random_table(5, seed=1)), threading.Event()

    async def main():
        pool = WorkerPool(1, 0)
        first = Question(engine, pool, lambda shared: free.wait(10))
        with pytest.raises(QueueFull):
            Question(engine, pool, lambda shared: None)
        free.set()
        assert await first.answer(Client())

    asyncio.run(main())
