"""The routes of the page: its data (behind the guard), its ratings and lab results, and its static files."""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from pydantic import Field

from unspool.decode.spec import parse
from unspool.diagnose.decoding_views import DecoderView, attention_map, beam_tree, next_token
from unspool.evaluate.rating import RatingSet, report
from unspool.interfaces import Decoder, StepModel
from unspool.lab.results import Finding
from unspool.serve.api_error import ApiError
from unspool.serve.generation import Emit, check_decoder
from unspool.serve.guard import App, Receive, Send, is_owner
from unspool.serve.metrics import record_of
from unspool.serve.requests import Int64, StrictModel, TokenId
from unspool.serve.scheduler import SharedModel
from unspool.serve.streaming import ModelTask, cancel_on_disconnect

if TYPE_CHECKING:
    from unspool.serve.server import Server

TIMEOUT_SECONDS = 60.0
MAX_BEAM_WIDTH = 16


# ---- request bodies


DecoderSpec = Annotated[str, Field(min_length=1, max_length=1000)]
Prompt = (
    Annotated[str, Field(min_length=1, max_length=20_000)]
    | Annotated[list[TokenId], Field(min_length=1, max_length=4096)]
)


class PromptFields(StrictModel):
    """The model and the prompt."""

    model: str = Field(max_length=1000)
    prompt: Prompt


class NextTokenRequest(PromptFields):
    """The body of POST /playground/next-token."""

    tokens: list[TokenId] = Field([], max_length=128)
    """Tokens chosen after the prompt."""
    decoders: list[DecoderSpec] = Field([], max_length=8)
    count: int = Field(40, ge=1, le=100)


class BeamTreeRequest(PromptFields):
    """The body of POST /playground/beam-tree."""

    decoder: DecoderSpec = "Beam(4)"
    max_tokens: int = Field(12, ge=1, le=64)
    seed: Int64 = 0


class AttentionRequest(PromptFields):
    """The body of POST /playground/attention."""

    decoder: DecoderSpec = "Greedy()"
    max_tokens: int = Field(0, ge=0, le=64)
    """Tokens to generate after the prompt."""
    kind: Literal["self", "encoder", "decoder", "source"] | None = None
    layer: int = Field(0, ge=0, le=1000)


@dataclass(frozen=True)
class PageContent:
    """Optional content of the page besides the models: a set of texts to rate, and lab results."""

    ratings: RatingSet | None = None
    findings: tuple[Finding, ...] = ()


# ---- ratings and lab


Rater = Annotated[str, Query(min_length=1, max_length=80)]


class RatingAnswer(StrictModel):
    """The body of POST /playground/rating."""

    rater: str = Field(min_length=1, max_length=80)
    item: str = Field(max_length=200)
    choice: str = Field(max_length=20)


class RatingRoutes:
    """Routes of the view Rate: the next item of a rater, answers, and the report."""

    def __init__(self, ratings: RatingSet) -> None:
        self._ratings = ratings

    def next(self, rater: Rater, request: Request) -> dict[str, Any]:
        """GET /playground/rating: the next item of a rater; null if all are answered."""
        return self._next(_own_name(rater, request))

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

    def answer(self, body: RatingAnswer, request: Request) -> dict[str, Any]:
        """POST /playground/rating: save the answer, then return the next item."""
        rater = _own_name(body.rater, request)
        try:
            self._ratings.record(rater, body.item, body.choice)
        except BlockingIOError as error:
            raise ApiError(503, "the answers are locked by another process: try again") from error
        return self._next(rater)

    def report(self, request: Request) -> dict[str, Any]:
        """GET /playground/rating-report: the results, with the names of the systems; for the owner's key."""
        if not is_owner(request.scope):
            raise ApiError(403, "only the owner's API key, the first one, may see the results")
        try:
            found = report(self._ratings)
        except FileNotFoundError as error:
            raise ApiError(404, "the key of this set is missing, which names the systems") from error
        pairs = [{"systems": list(systems), **asdict(test)} for systems, test in found.pairs.items()]
        return {**asdict(found), "pairs": pairs}


def _own_name(rater: str, request: Request) -> str:
    """The name under which answers are saved; the name of the API key in it prevents impersonation."""
    owner = record_of(request).owner
    return f"{rater.strip()[:60]}@{owner}" if owner else rater


class LabRoutes:
    """Routes of the view Lab: claims with verdicts, and their figures."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self._findings = {finding.claim.name: finding for finding in findings}
        self._drawing = threading.Lock()  # matplotlib draws one figure at a time

    def claims(self) -> list[dict[str, Any]]:
        """GET /playground/lab: all claims, without single results."""
        records = []
        for finding in self._findings.values():
            record = finding.record()
            seeds = [result["seed"] for result in record.pop("results")]
            records.append(
                {
                    **record,
                    "plan": finding.claim.plan(),
                    "limits": finding.claim.limits,
                    "seeds": seeds,
                    "stale": finding.is_stale,
                }
            )
        return records

    def figure(self, name: str) -> dict[str, str]:
        """GET /playground/lab/{name}: the figure of a claim."""
        finding = self._findings.get(name)
        if finding is None or not finding.current:
            raise ApiError(404, f"no figure of {name!r:.80}: unknown claim, or not measured yet")
        try:
            from unspool.lab.report import figure_svg

            with self._drawing:
                return {"svg": figure_svg(finding)}
        except ImportError as error:
            raise ApiError(503, str(error)) from error


# ---- views of a model


class PageRoutes:
    """Routes of the views Next token, Beam tree and Attention."""

    def __init__(self, server: Server, content: PageContent) -> None:
        self._server, self._content = server, content

    async def about(self) -> dict[str, Any]:
        """GET /playground/about: the models, and which views exist."""
        ratings = self._content.ratings
        return {
            "models": [_card(name, scheduler.model) for name, scheduler in self._server.schedulers.items()],
            "ratings": None if ratings is None else str(ratings.folder),
            "lab": bool(self._content.findings),
        }

    async def next_token(self, body: NextTokenRequest, request: Request) -> dict[str, Any]:
        """POST /playground/next-token: the next-token distribution, and what decoders keep of it."""
        parsed = [self._parse(spec) for spec in body.decoders]
        decoders = [view for view in parsed if not isinstance(view, DecoderView)]
        view = partial(
            next_token, prompt=body.prompt, tokens=body.tokens, decoders=decoders, count=body.count
        )
        record = await self._run(body.model, view, request)
        views = iter(record["decoders"])
        record["decoders"] = [
            asdict(view) if isinstance(view, DecoderView) else next(views) for view in parsed
        ]
        return record

    async def beam_tree(self, body: BeamTreeRequest, request: Request) -> dict[str, Any]:
        """POST /playground/beam-tree: every hypothesis of a beam search."""
        decoder = parse(body.decoder)
        limits = self._server.limits
        check_decoder(decoder, type(limits)(width=min(MAX_BEAM_WIDTH, limits.width)))
        view = partial(
            beam_tree, prompt=body.prompt, decoder=decoder, max_new_tokens=body.max_tokens, seed=body.seed
        )
        return await self._run(body.model, view, request)

    async def attention(self, body: AttentionRequest, request: Request) -> dict[str, Any]:
        """POST /playground/attention: the attention weights of one layer."""
        decoder = parse(body.decoder)
        check_decoder(decoder, self._server.limits)

        def view(model: SharedModel) -> Any:
            return attention_map(
                model, body.prompt, decoder, body.max_tokens, body.kind, body.layer, read=model.with_model
            )

        return await self._run(body.model, view, request)

    def _parse(self, spec: str) -> Decoder | DecoderView:
        """Parse one of several decoders; an error becomes its view, and the others are shown."""
        try:
            decoder = parse(spec)
            check_decoder(decoder, self._server.limits)
        except (ValueError, TypeError, ModuleNotFoundError) as error:
            return DecoderView(spec, error=str(error)[:500])
        return decoder

    async def _run(self, name: str, view: Callable[[SharedModel], Any], request: Request) -> dict[str, Any]:
        def work(model: SharedModel, emit: Emit) -> None:
            emit(asdict(view(model)))

        scheduler, pool = self._server.scheduler(name), self._server.pool
        task = ModelTask(scheduler, pool, lambda: work, TIMEOUT_SECONDS, record_of(request))
        async with cancel_on_disconnect(task, request):
            view_record: dict[str, Any] = await anext(task)
            return view_record


def add_routes(app: FastAPI, server: Server, content: PageContent) -> None:
    page = PageRoutes(server, content)
    app.get("/playground/about")(page.about)
    app.post("/playground/next-token")(page.next_token)
    app.post("/playground/beam-tree")(page.beam_tree)
    app.post("/playground/attention")(page.attention)
    if content.ratings is not None:
        ratings = RatingRoutes(content.ratings)
        app.get("/playground/rating")(ratings.next)
        app.post("/playground/rating")(ratings.answer)
        app.get("/playground/rating-report")(ratings.report)
    if content.findings:
        lab = LabRoutes(content.findings)
        app.get("/playground/lab")(lab.claims)
        app.get("/playground/lab/{name}")(lab.figure)


def _card(name: str, model: StepModel) -> dict[str, Any]:
    return {
        "name": name,
        "vocabulary": model.vocab_size,
        "context": model.context,
        "is_encoder_decoder": model.is_encoder_decoder,
        "basis": model.output_matrix is not None,
        "attention": model.attention_reading is not None or model.is_encoder_decoder,
    }


# ---- static files


STATIC_FOLDER = Path(__file__).parent / "static"
CONTENT_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]


class StaticFiles:
    """ASGI middleware that serves the files of the page without an API key.

    The files contain only public code; the requests of the page pass the guard with a key. The content
    security policy forbids other sources, inline scripts and styles, and HTML from strings, so that the text
    of a model is always shown as text.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        # Read once: paths of clients never reach the file system.
        files = {
            f"/playground/{path.name}": path
            for path in STATIC_FOLDER.iterdir()
            if path.suffix in CONTENT_TYPES
        }
        files["/"] = files.pop("/playground/index.html")
        self.files = {name: (CONTENT_TYPES[path.suffix], path.read_bytes()) for name, path in files.items()}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        found = self.files.get(scope["path"]) if is_read else None
        if found is None:
            await self._app(scope, receive, send)
            return
        kind, body = found
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
