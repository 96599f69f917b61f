"""The routes of the views *Rate* and *Lab*; there are none for what is not shown."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import Field

from unspool.evaluate.rating import RatingSet, report
from unspool.lab.findings import Finding
from unspool.serve.api_error import ApiError
from unspool.serve.playground.exhibits import Exhibits
from unspool.serve.request_fields import Fields

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
            from unspool.lab.pictures import svg

            with self._drawing:
                return svg(finding)
        except ModuleNotFoundError as error:
            raise ApiError(503, f"figures need {error.name}: pip install unspool[figures]") from error


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
