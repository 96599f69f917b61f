"""The picture of one next-token distribution: tokens by rank, and which of them each sampler keeps.

    kept(f₁, …, fₖ) = { x : fₖ(… f₁(log p(· | prompt)) …)(x) > −∞ }

Every threshold cuts the ranking at one place. Basis-aware sampling does not: it may reject a token and keep a
less probable one, which the picture sets off.

After Finlayson et al. 2024, figure 4. papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any

from unspool.decode.arguments import as_whole, items, shown
from unspool.decode.combine.lockstep import check_model
from unspool.decode.hypothesis import Job
from unspool.decode.request import make_job
from unspool.decode.search import Sample
from unspool.decode.search.sampling import reshape
from unspool.decode.transforms.scores import alive
from unspool.evaluate.exact_support import next_tokens
from unspool.interfaces import Step, StepModel
from unspool.plots.canvas import BLUE, INK, ORANGE, SOFT, canvas, drawn, label

DEFAULT_RULES = (
    "Sample(TopK(40))",
    "Sample(TopP(0.7))",
    "Sample(Eta(0.02))",
    "Sample(BasisAware(EtaTau(0.3)))",
)


@dataclass(frozen=True)
class RankPicture:
    """The most probable tokens after a prompt, best first, and which of them each rule keeps."""

    prompt: str
    tokens: tuple[str, ...]
    p: tuple[float, ...]
    kept: dict[str, tuple[bool, ...]]

    def exceptions(self, rule: str) -> list[int]:
        """The ranks (from 0) of tokens that the rule keeps although it cuts a more probable one."""
        kept = self.kept[rule]
        first_cut = kept.index(False) if False in kept else len(kept)
        return [rank for rank in range(first_cut, len(kept)) if kept[rank]]


def rank_picture(
    model: StepModel,
    prompt: str,
    rules: Sequence[Sample],
    names: Sequence[str],
    *,
    top: int = 60,
    refused: Callable[[str, ValueError], None] | None = None,
) -> RankPicture:
    """Look at the `top` most probable tokens after a prompt.

    A rule is a Sample: its transforms are applied in order, as when it draws, and BasisAware is asked about
    each of these tokens exactly. A rule that refuses the model is left out where `refused` is told of it.
    """
    check_model(model)
    if model.tokenizer is None:
        raise ValueError("the model has no tokenizer, so it can neither read a prompt nor show tokens.")
    if not model.tokenizer.encode(prompt):
        raise ValueError("the prompt is empty; give the words that come before the distribution to look at.")
    top = as_whole("top", top, at_least=1, advice="It is how many tokens are shown.")
    rules, names = items("rules", rules, "a list of Samples"), items("names", names, "a name for each rule")
    if len(rules) != len(names) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"names is {shown(names)}, but must hold a name for each of the {len(rules)} rules.")
    for rule in rules:
        if not isinstance(rule, Sample):
            raise TypeError(f"a rule is {shown(rule)}, but must be a Sample, whose transforms are applied.")
    job = make_job(model, [prompt], max_new_tokens=1, n=1, seed=0, stop=())
    step, _ = model.start(job.prompts)
    p_K, token_K = step.logp_NV[0].exp().topk(min(top, model.vocab_size))
    order = token_K.tolist()
    kept = {}
    for name, rule in zip(names, rules, strict=True):
        try:
            kept[name] = tuple(_kept(rule, model, job, step, order))
        except ValueError as error:
            if refused is None:
                raise
            refused(name, error)
    return RankPicture(prompt, tuple(model.tokenizer.decode([t]) for t in order), tuple(p_K.tolist()), kept)


def _kept(rule: Sample, model: StepModel, job: Job, step: Step, order: Sequence[int]) -> list[bool]:
    """Which of the tokens the rule may draw next."""
    ready = next_tokens(rule, model, job)
    scores_1V = reshape(step, job.paths(), ready.transforms)
    kept = alive(scores_1V)[0, order].tolist()
    if ready.bound is None:
        return kept
    left = [token for token, k in zip(order, kept, strict=True) if k]
    accepted = dict(zip(left, ready.accepted(step, scores_1V, left), strict=True))
    return [accepted.get(token, False) for token in order]


def draw_ranks(picture: RankPicture, path: str | Path) -> None:
    """Save the picture (.svg, .png, .pdf)."""
    drawn(picture, RankPicture)
    ranks = range(len(picture.p))
    width = max(4.0, 0.17 * len(picture.p) + 2.2)
    with canvas(path, width, 3.4 + 0.22 * len(picture.kept)) as figure:
        above, below = figure.subplots(2, sharex=True, height_ratios=(3.0, 0.28 * len(picture.kept)))
        set_off = {rank for rule in picture.kept for rank in picture.exceptions(rule)}
        colours = [ORANGE if rank in set_off else BLUE for rank in ranks]
        floor = min(log10(max(p, 1e-300)) for p in picture.p) - 0.3
        heights = [log10(max(p, 1e-300)) - floor for p in picture.p]
        above.bar(ranks, heights, bottom=floor, color=colours, width=0.8)
        above.set_ylabel("log₁₀ p")
        prompt = picture.prompt if len(picture.prompt) <= 90 else "…" + picture.prompt[-89:]
        above.set_title(f"“{label_line(prompt)}” …", loc="left", fontsize=10, parse_math=False)
        if set_off:
            above.text(
                *(0.995, 0.95),
                "orange: kept, although a more probable token is cut",
                transform=above.transAxes,
                ha="right",
                va="top",
                color=ORANGE,
            )
        _draw_rules(below, picture)
        below.set_xticks(list(ranks))
        below.set_xticklabels(
            [label(token) for token in picture.tokens], rotation=90, fontsize=7, parse_math=False
        )
        for panel in (above, below):
            panel.spines[["right", "top"]].set_visible(False)
            panel.margins(x=0.01)
        above.tick_params(bottom=False)


def _draw_rules(panel: Any, picture: RankPicture) -> None:
    for line, (name, kept) in enumerate(picture.kept.items()):
        out = [rank for rank, keep in enumerate(kept) if not keep]
        odd = picture.exceptions(name)
        even = [rank for rank, keep in enumerate(kept) if keep and rank not in set(odd)]
        panel.scatter(out, [line] * len(out), s=7, facecolors="none", edgecolors=SOFT, linewidths=0.6)
        panel.scatter(even, [line] * len(even), s=22, color=BLUE)
        panel.scatter(odd, [line] * len(odd), s=22, color=ORANGE)
    panel.set_yticks(range(len(picture.kept)))
    panel.set_yticklabels(list(picture.kept), fontsize=8, color=INK)
    panel.set_ylim(len(picture.kept) - 0.5, -0.5)


def label_line(text: str) -> str:
    """A prompt on one line."""
    return "".join("⏎" if character == "\n" else character for character in text)
