"""The next token: what the model gives to each, and what decoders make of that."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.multinomial import Multinomial
from unspool.decode.output import Output
from unspool.decode.picks import ArgMax, Bound
from unspool.decode.prompts import check_ids, reading
from unspool.decode.run import Run
from unspool.decode.search import Greedy, Sample
from unspool.decode.search.beam_state import Node, Status
from unspool.decode.search.sampling import bind_transforms, reshape
from unspool.diagnose.text_attention import Kind, Looks, attention_looks
from unspool.interfaces import BindablePick, Decoder, FinishReason, Step, StepModel, TokenizerLike

TEST_SECONDS = 2.0
"""For all tests of one distribution; whatever is not tested by then is undecided."""

Fate = Literal["kept", "proved", "cut", "undecided"]


@dataclass(frozen=True)
class Fates:
    """What a decoder does with the tokens that are shown.

    What becomes of single tokens under a decoder: kept, proved below the threshold, cut, or undecided.

    Sample(f…)              kept  ⇔  f(log p)(x) > −∞
    Sample(f…, ArgMax())    kept  ⇔  x is the best of these; Greedy(f…) is the same
    Sample(BasisAware(τ))   kept  ⇔  p(x) ≥ τ, or proved (`unspool.basis`)
    """

    decoder: str
    """As it is written."""
    fates: tuple[Fate, ...] = ()
    """For each of these tokens."""
    probabilities: tuple[float | None, ...] = ()
    """With which each would be drawn; None where that would need a test of every token."""
    kept: int | None = None
    """How many tokens of the whole vocabulary are kept, where that is known."""
    mass: float | None = None
    """What the model gives to all that are kept, or to those of them that are shown (`kept` is None)."""
    threshold: float | None = None
    """τ: whatever is less probable must be proved."""
    error: str | None = None
    """Why there is nothing else here."""


def rules_of(decoder: Decoder) -> tuple[Sequence[Any], Any]:
    """The transforms and the pick of a search that chooses one token after the other."""
    if isinstance(decoder, Sample):
        return decoder.transforms, decoder.pick
    if isinstance(decoder, Greedy):
        return decoder.transforms, ArgMax()
    raise ValueError(
        f"{decoder!r:.80} chooses whole texts, not single tokens: give a Greedy or a Sample, "
        "or look at it as a beam tree or side by side"
    )


def fates_of(pick: Any, scores_1V: Tensor, step: Step, tokens: Sequence[int]) -> Fates:
    """What `pick` does with these tokens, given what the transforms before it have made of log p."""
    return OF_PICKS[type(pick)](pick, scores_1V, step, tokens)


def _drawn(pick: Any, scores_1V: Tensor, step: Step, tokens: Sequence[int]) -> Fates:
    del pick
    q_V, alive_V = scores_1V[0].exp(), scores_1V[0] > -math.inf
    return Fates(
        "",
        tuple("kept" if alive_V[token] else "cut" for token in tokens),
        tuple(float(q_V[token]) for token in tokens),
        int(alive_V.sum()),
        float(step.logp_NV[0].exp()[alive_V].sum()),
    )


def _best(pick: Any, scores_1V: Tensor, step: Step, tokens: Sequence[int]) -> Fates:
    best = int(pick.draw(scores_1V, step, ())[0])
    return Fates(
        "",
        tuple("kept" if token == best else "cut" for token in tokens),
        tuple(float(token == best) for token in tokens),
        1,
        float(step.logp_NV[0, best].exp()),
    )


def _tested(pick: Bound, scores_1V: Tensor, step: Step, tokens: Sequence[int]) -> Fates:
    logp_1V = scores_1V if pick.pick.on == "processed" else step.logp_NV
    p_V = logp_1V[0].double().exp()
    tau = float(next(iter(pick.pick.tau(logp_1V))))  # type: ignore[operator]
    test, until = pick.test.step(p_V), time.monotonic() + TEST_SECONDS

    def fate(token: int) -> Fate:
        if scores_1V[0, token] == -math.inf:  # a rule before the pick has cut it
            return "cut"
        if p_V[token] >= tau:
            return "kept"
        if time.monotonic() > until:
            return "undecided"
        verdict = test.accepts(token, tau=tau)
        return "proved" if verdict else "undecided" if verdict.method == "undecided" else "cut"

    fates = tuple(map(fate, tokens))
    kept = [token for token, found in zip(tokens, fates, strict=True) if found in ("kept", "proved")]
    mass = float(step.logp_NV[0, kept].exp().sum())
    return Fates("", fates, (None,) * len(tokens), None, mass, tau)


OF_PICKS: dict[type, Callable[[Any, Tensor, Step, Sequence[int]], Fates]] = {
    Multinomial: _drawn,
    ArgMax: _best,
    Bound: _tested,
}


@dataclass(frozen=True)
class SeenToken:
    """One token of the vocabulary."""

    id: int
    text: str
    p: float | None = None
    """By the model itself; None for a token that was given."""


@dataclass(frozen=True)
class NextToken:
    """The distribution of the next token, and what each decoder keeps of it."""

    prompt: tuple[SeenToken, ...]
    chosen: tuple[SeenToken, ...]
    """What was chosen after the prompt, with the probabilities that each had."""
    ended: FinishReason | None
    """Why there is no next token, where one that was chosen ends a text."""
    entropy: float
    """In bits."""
    vocabulary: int
    tokens: tuple[SeenToken, ...]
    """The most probable ones, best first."""
    decoders: tuple[Fates, ...]


def next_token(
    model: StepModel,
    prompt: str | Sequence[int],
    tokens: Sequence[int] = (),
    decoders: Sequence[Decoder] = (),
    count: int = 40,
) -> NextToken:
    """What may follow the prompt and the tokens that were chosen after it; `count` tokens are told."""
    check_ids(model.vocab_size, tokens, "tokens")
    job = Run(model, prompt, max_new_tokens=len(tokens) + 1, seed=0).job
    if job.limits[0] <= len(tokens):
        raise ValueError(f"the context of this model is full: it holds {model.context} tokens")
    steps = _steps(model, job.prompts[0], tokens)
    logp_V = steps[-1].logp_NV[0]
    logps = [float(step.logp_NV[0, token]) for step, token in zip(steps, tokens, strict=False)]
    p_V = logp_V.double().exp()
    values, ids = p_V.topk(min(count, len(p_V)))
    best = [(token, p) for token, p in zip(ids.tolist(), values.tolist(), strict=True) if p > 0]
    path = job.hypothesis(0, 0)
    for token, logp in zip(tokens, logps, strict=True):
        path = path.extend(token, logp, logp, job)
    return NextToken(
        prompt=tuple(_seen(reading(model)[0], token) for token in job.prompts[0]),
        chosen=tuple(
            _seen(model.tokenizer, token, float(torch.tensor(logp).exp()))
            for token, logp in zip(tokens, logps, strict=True)
        ),
        ended=path.finish_reason,
        entropy=float(torch.special.entr(p_V).sum() / torch.tensor(2.0).log()),
        vocabulary=len(p_V),
        tokens=tuple(_seen(model.tokenizer, token, p) for token, p in best),
        decoders=tuple(
            _under(model, job, one, steps, tokens, [token for token, _ in best]) for one in decoders
        ),
    )


def _steps(model: StepModel, prompt: Sequence[int], tokens: Sequence[int]) -> list[Step]:
    """What the model says after the prompt, and after each of the tokens."""
    step, state = model.start([prompt])
    steps = [step]
    for token in tokens:
        step, state = model.step(state, torch.tensor([token]))
        steps.append(step)
    return steps


def _under(
    model: StepModel,
    job: Job,
    decoder: Decoder,
    steps: Sequence[Step],
    tokens: Sequence[int],
    shown: Sequence[int],
) -> Fates:
    """What one decoder does; an error of its own where it cannot."""
    try:
        rules, pick = rules_of(decoder)
        transforms = bind_transforms(rules, model, job)
        pick = pick.bind(model, transforms) if isinstance(pick, BindablePick) else pick
        path: Hypothesis = job.hypothesis(0, 0)
        # Rules may look back at what each token was drawn from (Mirostat): they go the whole way again.
        for step, token in zip(steps, tokens, strict=False):
            score = float(reshape(step, [path], transforms)[0, token])
            path = path.extend(token, float(step.logp_NV[0, token]), score, job)
        found = fates_of(pick, reshape(steps[-1], [path], transforms), steps[-1], shown)
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        return Fates(repr(decoder), error=str(error))
    return replace(found, decoder=repr(decoder))


def _seen(text: TokenizerLike | None, token: int, p: float | None = None) -> SeenToken:
    return SeenToken(token, f"<{token}>" if text is None else text.show(token), p)


# A beam at work: every hypothesis that it kept, as a tree, and the texts that it found.


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
    finish: FinishReason
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
    decoder: Decoder,
    max_new_tokens: int = 12,
    n: int | None = None,
    seed: int = 0,
) -> BeamTree:
    """Run a beam on one prompt and tell all of it; `n` texts, or as many as the beam is wide."""
    width = getattr(decoder, "width", None)
    if width is None:
        raise ValueError(f"{decoder!r:.80} keeps no tree: give a beam, such as Beam(4) or DiverseBeam(6, 3)")
    run = Run(model, prompt, decoder, n=n or width, max_new_tokens=max_new_tokens, seed=seed)
    (outputs,) = run.outputs()
    nodes = outputs[0].tree or ()
    return BeamTree(
        repr(decoder),
        tuple(
            SeenNode(node.parent, node.token, _shown(model, node.token), node.logp, node.score, node.status)
            for node in nodes
        ),
        tuple(FoundText(out.text, out.total, out.finish_reason, _last(nodes, out)) for out in outputs),
    )


def _last(nodes: Sequence[Node], out: Output) -> int | None:
    """The node that a text ended with; groups of a diverse beam may have gone the same way for a while."""
    places = {-1}
    for token in out.tokens:
        places = {at for at, node in enumerate(nodes) if node.parent in places and node.token == token}
    return min(places, default=None)


def _shown(model: StepModel, token: int) -> str:
    return f"<{token}>" if model.tokenizer is None else model.tokenizer.show(token)


# One layer of a model's attention, as the page shows it: `diagnose.attention_looks` of a text.


LONGEST = 160
"""Tokens of either side: a map of more cannot be read, and takes memory of its square."""


@dataclass(frozen=True)
class AttentionMap:
    """One layer's heads."""

    kind: Kind
    kinds: tuple[Kind, ...]
    """Which others there are for this model."""
    layer: int
    """Counted from 0."""
    layers: int
    heads: int
    looking: tuple[str, ...]
    looked_at: tuple[str, ...]
    weights: list[list[list[float]]]
    """(H, T, S), rounded to four digits."""


def attention_map(
    model: StepModel,
    prompt: str | Sequence[int],
    decoder: Decoder,
    max_new_tokens: int = 0,
    kind: Kind | None = None,
    layer: int = 0,
    *,
    read: Callable[[Callable[[Any], Any]], Any] | None = None,
) -> AttentionMap:
    """Where the heads of one layer look while `decoder` generates up to `max_new_tokens` after the prompt.

    `read` runs a function of the model itself where `model` only stands in for it (`serve`).
    """
    generation = Run(model, prompt, decoder, max_new_tokens=max(1, max_new_tokens), seed=0)
    ids = generation.job.prompts[0]
    said: tuple[int, ...] = ()
    if len(ids) + max_new_tokens > LONGEST:
        raise ValueError(
            f"the prompt has {len(ids)} tokens and {max_new_tokens} are to follow; a map of more than "
            f"{LONGEST} cannot be read: shorten it"
        )
    if max_new_tokens:
        ((output,),) = generation.outputs()
        said = output.tokens
    run = read or (lambda work: work(model))
    maps: Mapping[Kind, Looks] = run(lambda it: attention_looks(it, ids, said))
    if not maps:
        raise ValueError("this model has no attention to look at: take a Transformer, or an encoder–decoder")
    chosen: Kind = next(iter(maps)) if kind is None else kind
    if chosen not in maps:
        raise ValueError(f"this model has no {chosen} attention: choose from {', '.join(maps)}")
    looks = maps[chosen]
    if not 0 <= layer < len(looks.layers):
        raise ValueError(f"layer {layer} is not there: choose from 0 to {len(looks.layers) - 1}")
    weights = (looks.layers[layer].double() * 1e4).round().div(1e4).tolist()
    return AttentionMap(
        chosen, tuple(maps), layer, len(looks.layers), len(weights), looks.looking, looks.looked_at, weights
    )
