"""A beam at work: every hypothesis that it kept, as a tree, and the texts that it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unspool.decode.output import Output, output_of
from unspool.decode.request import make_job
from unspool.decode.search.tree import Node, Status
from unspool.protocols import Finish, Search, StepModel


@dataclass(frozen=True)
class SeenNode:
    """A hypothesis: its last token, and the node that it grew from (−1: the prompt)."""

    parent: int
    token: int
    text: str
    logp: float
    score: float
    status: Status


@dataclass(frozen=True)
class FoundText:
    """A text that the beam ended with."""

    text: str
    total: float | None
    """What it was ranked by."""
    finish: Finish
    node: int | None
    """Where its last token stands in the tree."""


@dataclass(frozen=True)
class BeamTree:
    """The whole search."""

    decoder: str
    nodes: tuple[SeenNode, ...]
    texts: tuple[FoundText, ...]
    """Best first."""


def beam_tree(
    model: StepModel,
    prompt: str | Sequence[int],
    search: Search,
    max_new_tokens: int = 12,
    n: int | None = None,
    seed: int = 0,
) -> BeamTree:
    """Run a beam on one prompt and tell all of it; `n` texts, or as many as the beam is wide."""
    width = getattr(search, "width", None)
    if width is None:
        raise ValueError(f"{search!r:.80} keeps no tree: give a beam, such as Beam(4) or DiverseBeam(6, 3)")
    job = make_job(model, [prompt], max_new_tokens=max_new_tokens, n=n or width, seed=seed, stop=None)
    ended = [path for frontier in search(model, job) for path in frontier.ended]
    outputs = [output_of(path, job, model.text) for path in ended]
    nodes = outputs[0].tree or ()
    return BeamTree(
        repr(search),
        tuple(
            SeenNode(node.parent, node.token, _shown(model, node.token), node.logp, node.score, node.status)
            for node in nodes
        ),
        tuple(FoundText(out.text, out.total, out.finish, _last(nodes, out)) for out in outputs),
    )


def _last(nodes: Sequence[Node], out: Output) -> int | None:
    """The node that a text ended with; groups of a diverse beam may have gone the same way for a while."""
    places = {-1}
    for token in out.tokens:
        places = {at for at, node in enumerate(nodes) if node.parent in places and node.token == token}
    return min(places, default=None)


def _shown(model: StepModel, token: int) -> str:
    return f"<{token}>" if model.text is None else model.text.show(token)
