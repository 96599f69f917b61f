"""The routes that the page asks, behind the guard like all others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from pydantic import Field

from unspool.decode.spec import parse
from unspool.evaluate.rating import RatingSet, report
from unspool.interfaces import Decoder as Search, StepModel
from unspool.lab.results import Finding
from unspool.serve.api_error import ApiError
from unspool.serve.guard import App, Receive, Send
from unspool.serve.page.views import Fates, attention_map, beam_tree, next_token
from unspool.serve.requests import Fields, TokenId, Whole, check_search
from unspool.serve.scheduler import Engine
from unspool.serve.server import Server
from unspool.serve.shared_model import GivenUp, SharedModel
from unspool.serve.worker_pool import WorkerPool

# One question of the page: a function of the shared model, run by a worker, given up when nobody waits.


SECONDS = 60.0
"""A page that has waited for longer has been closed."""


class Question:
    """Asked when it is made; `answer` waits."""

    def __init__(
        self, engine: Engine, pool: WorkerPool, work: Callable[[SharedModel], Any], seconds: float = SECONDS
    ) -> None:
        self._engine, self._work, self._deadline = engine, work, time.monotonic() + seconds
        self._loop = asyncio.get_running_loop()
        self._found: asyncio.Future[Any] = self._loop.create_future()
        self._lock, self._stopped = threading.Lock(), False
        self._model: SharedModel | None = None
        pool.submit(self._run)

    async def answer(self, request: Request) -> Any:
        """What the function gives; raises what went wrong. It is stopped when the client goes away."""
        gone = asyncio.create_task(self._watch(request))
        try:
            return await self._found
        except GivenUp as error:
            raise ApiError(503, "this question was given up") from error
        finally:
            gone.cancel()
            self.stop()

    def stop(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            self._stopped, model = True, self._model
        if model is not None:
            model.stop(GivenUp())

    async def _watch(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.stop()

    def _run(self) -> None:
        with self._lock:
            if self._stopped:
                self._tell(None, GivenUp())
                return
            self._model = model = self._engine.open(self._deadline)
        with model:
            try:
                found = self._work(model)
            except Exception as error:
                self._tell(None, error)
            else:
                self._tell(found, None)

    def _tell(self, found: Any, error: Exception | None) -> None:
        def settle() -> None:
            if self._found.done():
                return
            if error is None:
                self._found.set_result(found)
            else:
                self._found.set_exception(error)

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(settle)


# What the page may ask; unknown fields fail, and every size is bounded.


Decoder = Annotated[str, Field(min_length=1, max_length=1000)]
Prompt = (
    Annotated[str, Field(min_length=1, max_length=20_000)]
    | Annotated[list[TokenId], Field(min_length=1, max_length=4096)]
)


class PromptFields(Fields):
    """What every question names."""

    model: str = Field(max_length=1000)
    prompt: Prompt


class NextTokenQuestion(PromptFields):
    """POST /playground/next-token."""

    tokens: list[TokenId] = Field([], max_length=128)
    """What was chosen after the prompt."""
    decoders: list[Decoder] = Field([], max_length=8)
    count: int = Field(40, ge=1, le=100)


class BeamTreeQuestion(PromptFields):
    """POST /playground/beam-tree."""

    decoder: Decoder = "Beam(4)"
    max_tokens: int = Field(12, ge=1, le=64)
    seed: Whole = 0


class AttentionQuestion(PromptFields):
    """POST /playground/attention."""

    decoder: Decoder = "Greedy()"
    max_tokens: int = Field(0, ge=0, le=64)
    """How much of what the decoder says is looked at, too."""
    kind: Literal["self", "encoder", "decoder", "source"] | None = None
    layer: int = Field(0, ge=0, le=1000)


# What a server shows besides its models, where it was told to: texts to rate, and what the lab has found.


@dataclass(frozen=True)
class Exhibits:
    """Nothing, unless it is given."""

    ratings: RatingSet | None = None
    findings: tuple[Finding, ...] = ()


NOTHING = Exhibits()


# The routes of the views *Rate* and *Lab*; there are none for what is not shown.


Rater = Annotated[str, Query(min_length=1, max_length=80)]


class GivenAnswer(Fields):
    """POST /playground/rating."""

    rater: str = Field(min_length=1, max_length=80)
    item: str = Field(max_length=200)
    choice: str = Field(max_length=20)


class RatingDesk:
    """Hands out what a rater has not answered yet, takes answers, and sums up."""

    def __init__(self, ratings: RatingSet) -> None:
        self._ratings = ratings

    async def next(self, rater: Rater) -> dict[str, Any]:
        """GET /playground/rating: the next item of this rater; null when all are answered."""
        return await asyncio.to_thread(self._next, rater)

    async def answer(self, body: GivenAnswer) -> dict[str, Any]:
        """POST /playground/rating: on the disk before the next item is told."""
        try:
            await asyncio.to_thread(self._ratings.record, body.rater, body.item, body.choice)
        except BlockingIOError as error:
            raise ApiError(503, "the answers are locked by somebody else: try again") from error
        return await asyncio.to_thread(self._next, body.rater)

    async def report(self) -> dict[str, Any]:
        """GET /playground/rating-report: this opens the key."""
        try:
            found = await asyncio.to_thread(report, self._ratings)
        except FileNotFoundError as error:
            raise ApiError(404, "the key of this set is not here: it stayed where it was prepared") from error
        pairs = [{"systems": list(systems), **asdict(test)} for systems, test in found.pairs.items()]
        return {
            "scale": found.scale,
            "items": found.items,
            "answers": found.answers,
            "raters": dict(found.raters),
            "systems": [asdict(each) for each in found.systems],
            "alphas": {name: asdict(each) for name, each in found.alphas.items()},
            "pairs": pairs,
        }

    def _next(self, rater: str) -> dict[str, Any]:
        ratings, scale = self._ratings, self._ratings.scale
        item = ratings.next(rater)
        done = sum(answer.rater == rater.strip() for answer in ratings.answers())
        return {
            "scale": {"question": scale.question, "choices": dict(scale.choices), "guide": scale.guide},
            "item": None if item is None else asdict(item),
            "answered": done,
            "items": len(ratings.items),
        }


class Lab:
    """Claims with their verdicts, and the figure of each."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self._findings = {each.claim.name: each for each in findings}
        self._drawing = threading.Lock()  # matplotlib draws one figure at a time

    async def claims(self) -> list[dict[str, Any]]:
        """GET /playground/lab: all but the single results."""
        told = []
        for each in self._findings.values():
            record = each.record()
            seeds = [result["seed"] for result in record.pop("results")]
            told.append(
                {**record, "measured": each.claim.measured, "limits": each.claim.limits, "seeds": seeds}
            )
        return told

    async def figure(self, name: str) -> dict[str, str]:
        """GET /playground/lab/{name}: its figure."""
        finding = self._findings.get(name)
        if finding is None or not finding.results:
            raise ApiError(404, f"there is no figure of {name!r:.80}: it is no claim of the lab, or not run")
        return {"svg": await asyncio.to_thread(self._drawn, finding)}

    def _drawn(self, finding: Finding) -> str:
        try:
            from unspool.lab.report import figure_svg

            with self._drawing:
                return figure_svg(finding)
        except ImportError as error:
            raise ApiError(503, "figures need matplotlib: pip install unspool[figures]") from error


def add_exhibits(app: FastAPI, exhibits: Exhibits) -> None:
    """The routes of what is shown."""
    if exhibits.ratings is not None:
        desk = RatingDesk(exhibits.ratings)
        app.get("/playground/rating")(desk.next)
        app.post("/playground/rating")(desk.answer)
        app.get("/playground/rating-report")(desk.report)
    if exhibits.findings:
        lab = Lab(exhibits.findings)
        app.get("/playground/lab")(lab.claims)
        app.get("/playground/lab/{name}")(lab.figure)


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
        decoders = [each for each in written if not isinstance(each, Fates)]
        work = partial(
            next_token, prompt=body.prompt, tokens=body.tokens, decoders=decoders, count=body.count
        )
        told: dict[str, Any] = await self._answer(body.model, work, request)
        found = iter(told["decoders"])
        told["decoders"] = [asdict(each) if isinstance(each, Fates) else next(found) for each in written]
        return told

    async def beam_tree(self, body: BeamTreeQuestion, request: Request) -> dict[str, Any]:
        """POST /playground/beam-tree: every hypothesis of a beam."""
        decoder = parse(body.decoder)
        limits = self._server.limits
        check_search(decoder, type(limits)(width=min(WIDTH, limits.width)))
        work = partial(
            beam_tree, prompt=body.prompt, decoder=decoder, max_new_tokens=body.max_tokens, seed=body.seed
        )
        return await self._answer(body.model, work, request)

    async def attention(self, body: AttentionQuestion, request: Request) -> dict[str, Any]:
        """POST /playground/attention: where the heads of one layer look."""
        decoder = parse(body.decoder)
        check_search(decoder, self._server.limits)

        def work(model: SharedModel) -> Any:
            return attention_map(
                model, body.prompt, decoder, body.max_tokens, body.kind, body.layer, read=model.with_model
            )

        return await self._answer(body.model, work, request)

    def _read(self, spec: str) -> Search | Fates:
        """One decoder of several: what is wrong with it is told beside it, and the others are answered."""
        try:
            decoder = parse(spec)
            check_search(decoder, self._server.limits)
        except (ValueError, TypeError, ModuleNotFoundError) as error:
            return Fates(spec, error=str(error)[:500])
        return decoder

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
        "answers": model.is_encoder_decoder,
        "basis": model.output_matrix is not None,
        "attention": model.attention_reading is not None or model.is_encoder_decoder,
    }


FOLDER = Path(__file__).parent / "static"
KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]


class StaticFiles:
    """An ASGI application that gives the page's files, and leaves everything else to another.

    The page itself: a few files of this package, given to whoever asks, before any key is asked for.

    They hold nothing but code that is public. Whatever the page then asks goes through the guard with a key.
    The policy sent along forbids the browser every foreign source, every script and style inside the page,
    and to make HTML of a string: what a model says can only ever be text.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        # All there is, read once: a path that a client makes up is never looked for on disk.
        files = {f"/playground/{path.name}": path for path in FOLDER.iterdir() if path.suffix in KINDS}
        files["/"] = files.pop("/playground/index.html")
        self.files = {name: (KINDS[path.suffix], path.read_bytes()) for name, path in files.items()}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """A file of the page, or what the application behind it says."""
        known = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        found = self.files.get(scope["path"]) if known else None
        if found is None:
            await self._app(scope, receive, send)
            return
        kind, body = found
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
