"""Views of decoding: next-token distributions, beam trees and attention maps, which the page shows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.output import Output
from unspool.decode.picks import BoundBasisAware
from unspool.decode.prompts import check_ids, prompt_vocabulary
from unspool.decode.run import Run
from unspool.decode.search.beam_state import Node, Status
from unspool.decode.search.sampling import reshape
from unspool.diagnose.text_attention import AttentionLayers, Kind, read_attention, token_strings
from unspool.evaluate.exact_support import NextTokens, next_tokens
from unspool.interfaces import Decoder, FinishReason, Step, StepModel

TEST_SECONDS = 2.0
"""Time limit of the basis-aware tests of one distribution; later tokens are undecided."""
MAX_MAP_TOKENS = 160
"""Tokens of either axis of an attention map; memory is quadratic in it."""

TokenStatus = Literal["kept", "proved", "cut", "undecided"]


@dataclass(frozen=True)
class DecoderView:
    """The effect of a decoder on each token of a distribution.

    Sample(f…)              kept  ⇔  f(log p)(x) > −∞
    Sample(f…, ArgMax())    kept  ⇔  x is the best of these; Greedy(f…) is the same
    Sample(BasisAware(τ))   kept  ⇔  p(x) ≥ τ, or proved possible below τ (`unspool.basis`)
    """

    decoder: str
    statuses: tuple[TokenStatus, ...] = ()
    probabilities: tuple[float | None, ...] = ()
    """The sampling probability of each shown token; None if it would need a test of every token."""
    kept: int | None = None
    """Kept tokens of the whole vocabulary, if known."""
    mass: float | None = None
    """Model probability of the kept tokens; only of the shown ones if `kept` is None."""
    threshold: float | None = None
    """τ: less probable tokens need a proof."""
    error: str | None = None
    """Why the decoder cannot be shown."""


def view_next(
    distribution: NextTokens, step: Step, history: Sequence[Hypothesis], tokens: Sequence[int]
) -> DecoderView:
    """What a decoder keeps of these tokens, given one hypothesis and its Step."""
    if isinstance(distribution.pick, BoundBasisAware):
        scores_1V = reshape(step, history, distribution.transforms)
        return _view_basis_aware(distribution.pick, scores_1V, step, tokens)
    kept_1V, logq_1V = distribution(step, history)
    return DecoderView(
        "",
        tuple("kept" if kept_1V[0, token] else "cut" for token in tokens),
        tuple(float(logq_1V[0, token].exp()) for token in tokens),
        int(kept_1V.sum()),
        float(step.logp_NV.exp()[kept_1V].sum()),
    )


def _view_basis_aware(
    pick: BoundBasisAware, scores_1V: Tensor, step: Step, tokens: Sequence[int]
) -> DecoderView:
    logp_1V, (tau,) = pick.tested(scores_1V, step)
    p_V = logp_1V[0].double().exp()
    test, until = pick.test.step(p_V), time.monotonic() + TEST_SECONDS

    def status(token: int) -> TokenStatus:
        if scores_1V[0, token] == -math.inf:  # a transform has removed it
            return "cut"
        if p_V[token] >= tau:
            return "kept"
        if time.monotonic() > until:
            return "undecided"
        verdict = test.accepts(token, tau=tau)
        return "proved" if verdict else "undecided" if verdict.method == "undecided" else "cut"

    statuses = tuple(map(status, tokens))
    kept = [token for token, fate in zip(tokens, statuses, strict=True) if fate in ("kept", "proved")]
    mass = float(step.logp_NV[0, kept].exp().sum())
    return DecoderView("", statuses, (None,) * len(tokens), None, mass, tau)


@dataclass(frozen=True)
class TokenView:
    """One token of the vocabulary."""

    id: int
    text: str
    p: float | None = None
    """Probability under the model; None for tokens of the prompt."""


@dataclass(frozen=True)
class NextToken:
    """The distribution of the next token, and what each decoder keeps of it."""

    prompt: tuple[TokenView, ...]
    chosen: tuple[TokenView, ...]
    """The tokens chosen after the prompt, with their probabilities."""
    ended: FinishReason | None
    """The finish reason, if a chosen token ends the text."""
    entropy: float
    """In bits."""
    vocabulary: int
    tokens: tuple[TokenView, ...]
    """The most probable tokens, best first."""
    decoders: tuple[DecoderView, ...]


def next_token(
    model: StepModel,
    prompt: str | Sequence[int],
    tokens: Sequence[int] = (),
    decoders: Sequence[Decoder] = (),
    count: int = 40,
) -> NextToken:
    """The `count` most probable tokens after the prompt and the chosen tokens."""
    check_ids(model.vocab_size, tokens, "tokens")
    job = Run(model, prompt, max_new_tokens=len(tokens) + 1, seed=0).job
    if job.limits[0] <= len(tokens):
        raise ValueError(f"the context of {model.context} tokens is full: step back or shorten the prompt")
    step, state = model.start(job.prompts)
    steps, hypothesis = [step], job.hypothesis(0, 0)
    for token in tokens:
        logp = float(step.logp_NV[0, token])
        hypothesis = hypothesis.extend(token, logp, logp, job)
        step, state = model.step(state, torch.tensor([token]))
        steps.append(step)
    p_V = step.logp_NV[0].double().exp()
    values, ids = p_V.topk(min(count, len(p_V)))
    shown, probabilities = ids[values > 0].tolist(), values[values > 0].tolist()
    prompt_tokens, tokenizer = job.prompts[0], model.tokenizer
    prompt_texts = token_strings(prompt_vocabulary(model)[0], prompt_tokens)
    return NextToken(
        prompt=tuple(map(TokenView, prompt_tokens, prompt_texts)),
        chosen=tuple(
            map(TokenView, tokens, token_strings(tokenizer, tokens), map(math.exp, hypothesis.logps))
        ),
        ended=hypothesis.finish_reason,
        entropy=float(torch.special.entr(p_V).sum() / math.log(2)),
        vocabulary=len(p_V),
        tokens=tuple(map(TokenView, shown, token_strings(tokenizer, shown), probabilities)),
        decoders=tuple(_view_decoder(model, job, decoder, steps, tokens, shown) for decoder in decoders),
    )


def _view_decoder(
    model: StepModel,
    job: Job,
    decoder: Decoder,
    steps: Sequence[Step],
    tokens: Sequence[int],
    shown: Sequence[int],
) -> DecoderView:
    """The effect of one decoder on the shown tokens; an error becomes its view."""
    try:
        distribution = next_tokens(decoder, model, job)
        hypothesis = job.hypothesis(0, 0)
        # Transforms with a history (Mirostat) depend on the scores of the chosen tokens.
        for step, token in zip(steps, tokens, strict=False):
            score = float(reshape(step, [hypothesis], distribution.transforms)[0, token])
            hypothesis = hypothesis.extend(token, float(step.logp_NV[0, token]), score, job)
        view = view_next(distribution, steps[-1], [hypothesis], shown)
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        return DecoderView(repr(decoder), error=str(error))
    return replace(view, decoder=repr(decoder))


# ---- beam tree


@dataclass(frozen=True)
class NodeView:
    """A hypothesis of the beam: its last token and its parent node (−1: the prompt)."""

    parent: int
    token: int
    text: str
    logp: float
    score: float
    status: Status


@dataclass(frozen=True)
class TextView:
    """A text that the beam returned."""

    text: str
    total: float | None
    """The score that it is ranked by."""
    finish_reason: FinishReason
    node: int | None
    """The node of its last token."""


@dataclass(frozen=True)
class BeamTree:
    """All nodes of a beam search, and its texts."""

    decoder: str
    nodes: tuple[NodeView, ...]
    texts: tuple[TextView, ...]
    """Best first."""


def beam_tree(
    model: StepModel,
    prompt: str | Sequence[int],
    decoder: Decoder,
    max_new_tokens: int = 12,
    seed: int = 0,
) -> BeamTree:
    """Run a beam search on one prompt; returns as many texts as the beam is wide."""
    width = getattr(decoder, "width", None)
    if width is None:
        raise ValueError(
            f"{decoder!r:.80} is not a beam search: give Beam(4) or DiverseBeam(6, 3), for example"
        )
    (outputs,) = Run(model, prompt, decoder, n=width, max_new_tokens=max_new_tokens, seed=seed).outputs()
    nodes = outputs[0].tree or ()
    strings = token_strings(model.tokenizer, [node.token for node in nodes])
    return BeamTree(
        repr(decoder),
        tuple(
            NodeView(node.parent, node.token, text, *node[2:])
            for node, text in zip(nodes, strings, strict=True)
        ),
        tuple(TextView(out.text, out.total, out.finish_reason, _last_node(nodes, out)) for out in outputs),
    )


def _last_node(nodes: Sequence[Node], out: Output) -> int | None:
    """The last node of a text; groups of a diverse beam may contain the same path twice."""
    current = {-1}
    for token in out.tokens:
        current = {
            index for index, node in enumerate(nodes) if node.parent in current and node.token == token
        }
    return min(current, default=None)


# ---- attention


@dataclass(frozen=True)
class AttentionMap:
    """The attention weights of the heads of one layer."""

    kind: Kind
    kinds: tuple[Kind, ...]
    layer: int
    """Counted from 0."""
    layers: int
    heads: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
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
    """The attention of one layer over the prompt and up to `max_new_tokens` generated tokens.

    `read` runs a function of the underlying model, if `model` is a `SharedModel`.
    """
    generation = Run(model, prompt, decoder, max_new_tokens=max(1, max_new_tokens), seed=0)
    ids = generation.job.prompts[0]
    if len(ids) + max_new_tokens > MAX_MAP_TOKENS:
        raise ValueError(
            f"{len(ids)} prompt tokens and {max_new_tokens} new ones are more than {MAX_MAP_TOKENS}: "
            "shorten the prompt"
        )
    generated = generation.outputs()[0][0].tokens if max_new_tokens else ()
    run = read or (lambda work: work(model))
    maps: Mapping[Kind, AttentionLayers] = run(lambda whole: read_attention(whole, ids, generated))
    if not maps:
        raise ValueError("this model does not have attention: use a Transformer or an encoder–decoder")
    chosen: Kind = next(iter(maps)) if kind is None else kind
    if chosen not in maps:
        raise ValueError(f"this model does not have {chosen} attention: choose from {', '.join(maps)}")
    layers, queries, keys = maps[chosen].layers, maps[chosen].queries, maps[chosen].keys
    if not 0 <= layer < len(layers):
        raise ValueError(f"there is no layer {layer}: choose from 0 to {len(layers) - 1}")
    weights = (layers[layer].double() * 1e4).round().div(1e4).tolist()
    return AttentionMap(chosen, tuple(maps), layer, len(layers), len(weights), queries, keys, weights)
