"""The routes that the page asks, behind the guard like all others."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import FastAPI, Request

from unspool.decode.spec import parse
from unspool.protocols import Search, StepModel
from unspool.serve.limits import check_search
from unspool.serve.playground.attention_map import attention_map
from unspool.serve.playground.beam_tree import beam_tree
from unspool.serve.playground.exhibit_routes import add_exhibits
from unspool.serve.playground.exhibits import Exhibits
from unspool.serve.playground.next_token import next_token
from unspool.serve.playground.question import Question
from unspool.serve.playground.question_fields import AttentionQuestion, BeamTreeQuestion, NextTokenQuestion
from unspool.serve.playground.token_fates import Fates
from unspool.serve.server import Server
from unspool.serve.shared_model import SharedModel

WIDTH = 16
"""Any whole number of a beam that is drawn: a wider one cannot be seen."""


class Playground:
    """Answers the page's questions by the server's engines."""

    def __init__(self, server: Server, exhibits: Exhibits) -> None:
        self._server, self._exhibits = server, exhibits

    async def about(self) -> dict[str, Any]:
        """GET /playground/about: what is served, and what can be looked at."""
        ratings = self._exhibits.ratings
        return {
            "models": [_card(name, engine.model) for name, engine in self._server.engines.items()],
            "ratings": None if ratings is None else str(ratings.folder),
            "lab": bool(self._exhibits.findings),
        }

    async def next_token(self, body: NextTokenQuestion, request: Request) -> dict[str, Any]:
        """POST /playground/next-token: the distribution of the next token, and what decoders keep of it."""
        written = [self._read(decoder) for decoder in body.decoders]
        searches = [each for each in written if not isinstance(each, Fates)]
        work = partial(
            next_token, prompt=body.prompt, tokens=body.tokens, decoders=searches, count=body.count
        )
        told: dict[str, Any] = await self._answer(body.model, work, request)
        found = iter(told["decoders"])
        told["decoders"] = [asdict(each) if isinstance(each, Fates) else next(found) for each in written]
        return told

    async def beam_tree(self, body: BeamTreeQuestion, request: Request) -> dict[str, Any]:
        """POST /playground/beam-tree: every hypothesis of a beam."""
        search = parse(body.decoder)
        limits = self._server.limits
        check_search(search, type(limits)(width=min(WIDTH, limits.width)))
        work = partial(
            beam_tree, prompt=body.prompt, search=search, max_new_tokens=body.max_tokens, seed=body.seed
        )
        return await self._answer(body.model, work, request)

    async def attention(self, body: AttentionQuestion, request: Request) -> dict[str, Any]:
        """POST /playground/attention: where the heads of one layer look."""
        search = parse(body.decoder)
        check_search(search, self._server.limits)

        def work(model: SharedModel) -> Any:
            return attention_map(
                model, body.prompt, search, body.max_tokens, body.kind, body.layer, read=model.with_model
            )

        return await self._answer(body.model, work, request)

    def _read(self, decoder: str) -> Search | Fates:
        """One decoder of several: what is wrong with it is told beside it, and the others are answered."""
        try:
            search = parse(decoder)
            check_search(search, self._server.limits)
        except (ValueError, TypeError, ModuleNotFoundError) as error:
            return Fates(decoder, error=str(error)[:500])
        return search

    async def _answer(self, name: str, work: Any, request: Request) -> dict[str, Any]:
        question = Question(self._server.engine(name), self._server.pool, work)
        return asdict(await question.answer(request))


def add_routes(app: FastAPI, server: Server, exhibits: Exhibits) -> None:
    """Put them beside the others."""
    page = Playground(server, exhibits)
    app.get("/playground/about")(page.about)
    app.post("/playground/next-token")(page.next_token)
    app.post("/playground/beam-tree")(page.beam_tree)
    app.post("/playground/attention")(page.attention)
    add_exhibits(app, exhibits)


def _card(name: str, model: StepModel) -> dict[str, Any]:
    return {
        "name": name,
        "vocabulary": model.vocab_size,
        "context": model.context,
        "answers": model.answers,
        "basis": model.output_matrix is not None,
        "attention": model.attention_reading is not None or model.answers,
    }
