"""Human ratings of texts: prepare a blinded set, record answers, and report the results.

    from unspool.evaluate.rating import RatingSet, prepare, report

    ratings = prepare("ratings", {"ours": […], "theirs": […]}, prompts, seed=1)
    item = ratings.next("anna")                    # None if she has answered all items
    ratings.record("anna", item.id, "2")
    report(ratings)

The command line and the server's page ask the questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.evaluate.rating.answers import SCALES as SCALES
    from unspool.evaluate.rating.rater_agreement import (
        alpha as alpha,
        alpha_measure as alpha_measure,
        bradley_terry_strengths as bradley_terry_strengths,
    )
    from unspool.evaluate.rating.rating_report import RatingReport as RatingReport, report as report
    from unspool.evaluate.rating.rating_set import (
        RatingItem as RatingItem,
        RatingSet as RatingSet,
        prepare as prepare,
        read_sheet as read_sheet,
        write_sheet as write_sheet,
    )

__all__, __getattr__, __dir__ = lazy_exports(__name__)
