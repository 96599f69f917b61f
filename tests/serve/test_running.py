import asyncio

import pytest

import unspool as us
from unspool.serve.api_error import ApiError
from unspool.serve.requests import Limits
from unspool.serve.shared_model import DeadlinePassed
from unspool.serve.streaming import Asked, Running
from unspool.serve.worker_pool import WorkerPool
from unspool.testing import random_table

OPTIONS = {"max_new_tokens": 5, "n": 1, "seed": 1, "stop": None}


def run(engine, asked, limits, listen):
    async def main():
        return await listen(Running(engine, WorkerPool(1, 1), asked, limits))

    return asyncio.run(main())


def test_pieces_cross_over(engine_of):
    model = random_table(9, seed=1)

    async def listen(running):
        await running.begun()
        return [token async for piece in running.pieces() for token in piece.tokens]

    found = run(engine_of(model), Asked([1], us.Sample(), OPTIONS), Limits(), listen)
    assert tuple(found) == us.generate(model, [1], us.Sample(), max_new_tokens=5, seed=1).tokens


def test_errors_cross_over(engine_of):
    async def listen(running):
        await running.begun()

    engine = engine_of(random_table(9, seed=1))
    with pytest.raises(ApiError, match="vocabulary") as refused:
        run(engine, Asked([99], us.Sample(), OPTIONS), Limits(), listen)
    assert refused.value.status == 400

    async def drain(running):
        await running.begun()
        return [piece async for piece in running.pieces()]

    with pytest.raises(DeadlinePassed):
        run(engine, Asked([1], us.Sample(), OPTIONS), Limits(seconds=0), drain)
