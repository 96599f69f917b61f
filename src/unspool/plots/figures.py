"""One function for each figure: it takes a result and saves the figure to `path` (.svg, .png or .pdf)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool.arguments import as_int, items, shown
from unspool.errors import clip
from unspool.plots.canvas import BLUE, GREEN, INK, ORANGE, RED, SOFT, canvas, check_type, label

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unspool.diagnose.beam_search_curse import BeamWidths
    from unspool.diagnose.dependency_agreement import LabelAgreement
    from unspool.diagnose.feasible_set import Feasible
    from unspool.diagnose.likelihood_traps import LikelihoodTrap
    from unspool.diagnose.ranked_tokens import RankedTokens
    from unspool.diagnose.softmax_bottleneck import Bottleneck
    from unspool.diagnose.text_attention import AttentionMap, AttentionMaps
    from unspool.diagnose.text_loops import LoopRates
    from unspool.diagnose.word_senses import Senses
    from unspool.evaluate.confidence_calibration import Calibration
    from unspool.evaluate.significance import Interval

    Array = NDArray[np.float64]

COLUMNS = 3
MAX_USES = 16


def draw_intervals(panels: Mapping[str, Mapping[str, Interval]], path: str | Path) -> None:
    """Draw measures with confidence intervals: a panel for each measure, a line for each system."""
    is_nested = isinstance(panels, Mapping) and all(isinstance(panel, Mapping) for panel in panels.values())
    if not is_nested or not panels:
        raise TypeError(f"panels is {shown(panels)}, but must be a dict: measure → system → interval")
    for interval in (interval for systems in panels.values() for interval in systems.values()):
        check_type(interval, "Interval")
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    max_systems = max(len(systems) for systems in panels.values())
    with canvas(path, 3.4 * columns + 0.6, rows * (0.8 + 0.28 * max_systems)) as figure:
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel, (measure, systems) in zip(axes, panels.items(), strict=False):
            for row, interval in enumerate(systems.values()):
                if not isfinite(interval.value):
                    continue
                ends = [end if isfinite(end) else interval.value for end in (interval.low, interval.high)]
                panel.plot(ends, [row, row], color=SOFT, lw=3, solid_capstyle="butt")
                panel.plot([interval.value], [row], "o", color=BLUE, ms=5)
            panel.set_yticks(range(len(systems)), [clip(name, 28) for name in systems], parse_math=False)
            panel.set_ylim(len(systems) - 0.5, -0.5)
            panel.set_title(measure, **{"loc": "left", "fontsize": 9, "color": INK, "parse_math": False})
            panel.margins(x=0.12)
        for panel in axes[len(panels) :]:
            panel.set_visible(False)


def draw_heads(result: Sequence[LabelAgreement], path: str | Path) -> None:
    """Draw how well attention heads follow dependency arcs: for each label, the best head and best offset."""
    result = items("result", result, "a list of LabelAgreement")
    for best in result:
        check_type(best, "LabelAgreement")
    with canvas(path, 6.4, 0.6 + 0.28 * len(result)) as figure:
        panel = figure.subplots()
        for row, best in enumerate(result):
            panel.barh(row - 0.2, best.agreement, 0.36, color=BLUE)
            panel.barh(row + 0.2, best.offset_agreement, 0.36, color=SOFT)
            style = {"va": "center", "fontsize": 7}
            panel.text(best.agreement, row - 0.2, f" {best.layer}.{best.head}", color=BLUE, **style)
            panel.text(best.offset_agreement, row + 0.2, f" −{best.offset}", color=SOFT, **style)
        panel.set_yticks(range(len(result)), [best.label for best in result])
        panel.invert_yaxis()
        panel.set_xlim(0, 1.05)
        panel.set_xlabel("share of arcs found: best head (layer.head), best offset")


def draw_reliability(result: Calibration, path: str | Path) -> None:
    """Draw the reliability diagram: accuracy by confidence, and the share of tokens with each confidence.

    After Guo et al. 2017, figure 1 (papers.bib: guo2017calibration).
    """
    check_type(result, "Calibration")
    bins = [bin_ for bin_ in result.bins if bin_.count]
    with canvas(path, 4.4, 4.8) as figure:
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        top.plot([0, 1], [0, 1], color=SOFT, lw=0.8, ls="--")
        width = 1 / len(result.bins)
        for bin_ in bins:
            middle = (bin_.low + bin_.high) / 2
            ends = [middle - width * 0.46, middle + width * 0.46]
            top.bar(middle, bin_.accuracy, width * 0.92, color=BLUE)
            top.plot(ends, [bin_.confidence] * 2, color=ORANGE, lw=2)
            below.bar(middle, bin_.count / result.count, width * 0.92, color=SOFT)
        top.set_ylim(0, 1.02)
        top.set_ylabel("accuracy (blue), confidence (orange)")
        below.set_xlim(0, 1)
        below.set_xlabel("confidence: the probability of the most probable token")
        below.set_ylabel("share")
        chance = f"by chance {result.null.low:.4f} to {result.null.high:.4f}"
        top.set_title(f"ECE {result.ece:.4f} over {result.count:,} tokens, {chance}", loc="left", fontsize=10)


def draw_senses(result: Senses, path: str | Path, uses: Sequence[tuple[str, float]] = ()) -> None:
    """Draw the senses of a KerBS head.

        left: the number of words with j senses,   right: θ of every sense, by the number of its word's senses
        below: the share of each of the first 16 `uses`, given as (label, share)

    After Miao et al. 2019, §4 (papers.bib: miao2019kernelized), who list words by number of senses and by θ.
    """
    check_type(result, "Senses")
    wanted = "a list of labels and shares: [(label, 0.5), …]"
    by_number, uses = result.by_number, items("uses", uses, wanted)[:MAX_USES]
    if not all(map(_is_use, uses)):
        raise TypeError(f"uses is {shown(uses)}, but must be {wanted}")
    below = 0.24 * len(uses) + 0.5 * bool(uses)
    with canvas(path, 6.4, 3.2 + below) as figure:
        if uses:
            above, under = figure.subfigures(2, 1, height_ratios=[3.2, below])
            _draw_uses(under, uses)
        else:
            above = figure
        words, widths = above.subplots(1, 2)
        bars = words.bar(list(by_number), list(by_number.values()), color=BLUE, width=0.7)
        words.bar_label(bars, fmt="{:,.0f}", fontsize=8, color=INK)
        words.set_ylabel("words")
        for number in by_number:
            thetas = sorted(
                theta for word in result.words if len(word.thetas) == number for theta in word.thetas
            )
            # Spread in rising order, so that equal values do not hide each other.
            places = [number + 0.7 * ((rank + 0.5) / len(thetas) - 0.5) for rank in range(len(thetas))]
            widths.plot(places, thetas, ".", ms=2.5, color=BLUE)
        widths.axhline(0.0, color=SOFT, lw=0.8, zorder=0)
        widths.set_ylabel("θ of each sense")
        for panel in (words, widths):
            panel.set_xticks(list(by_number))
            panel.set_xlabel("senses of the word")


def _is_use(use: Any) -> bool:
    match use:
        case (str(), float() | int()):
            return True
    return False


def _draw_uses(figure: Any, uses: Sequence[tuple[str, float]]) -> None:
    panel = figure.subplots()
    panel.barh(range(len(uses)), [share for _, share in uses], color=BLUE, height=0.7)
    panel.set_yticks(range(len(uses)), [_drawable(text) for text, _ in uses], fontsize=7, parse_math=False)
    panel.invert_yaxis()
    panel.set_xlim(0.0, 1.0)
    panel.set_xlabel("share of the word's occurrences")


def _drawable(text: str) -> str:
    """Apply `label` to each word, but keep the spaces between words."""
    return " ".join(label(word) for word in text.split(" "))


def draw_spectrum(result: Bottleneck, path: str | Path) -> None:
    """Draw the spectrum of a softmax bottleneck: the singular values of log-probabilities, largest first.

        σ₁ ≥ σ₂ ≥ …  of A′ = log softmax(HWᵀ), which fall to rounding after D + 1 of them (D + 2 with a bias)

    After Yang et al. 2018, §2.2 (papers.bib: yang2018breaking), where the rank itself is the claim.
    """
    check_type(result, "Bottleneck")
    with canvas(path, 6.4, 3.6) as figure:
        panel = figure.subplots()
        ranks = range(1, len(result.singular_values) + 1)
        # A logarithmic axis cannot show 0: values below the floor are drawn there.
        floor = max(1e-3 * result.smallest, 1e-300)
        values = [max(value, floor) for value in result.singular_values]
        panel.semilogy(ranks, values, ".", ms=3, color=BLUE, label="log-probabilities")
        if result.weight_singular_values:
            matrix = [max(value, floor) for value in result.weight_singular_values]
            panel.semilogy(range(1, len(matrix) + 1), matrix, ".", ms=3, color=SOFT, label="output matrix")
        panel.legend(loc="upper center", frameon=False, markerscale=3)
        panel.axhline(result.smallest, color=RED, lw=0.8, ls="--")
        panel.text(1, result.smallest, "rounding error", color=RED, va="bottom", fontsize=8)
        if result.limit is not None:
            panel.axvline(result.limit, color=ORANGE, lw=0.8)
            panel.annotate(
                f"{result.limit_formula} ",
                (result.limit, 0.98),
                xycoords=("data", "axes fraction"),
                **{"color": ORANGE, "ha": "right", "va": "top", "fontsize": 8},
            )
        panel.set_xlabel("singular value, by rank")
        panel.set_ylabel("size")
        panel.set_title(
            f"rank {result.rank:,} over {result.contexts:,} contexts of {result.vocab_size:,} words",
            **{"loc": "left", "fontsize": 10, "parse_math": False},
        )


def draw_widths(result: BeamWidths, path: str | Path) -> None:
    """Draw the beam search curse: length, quality and log p by beam width."""
    check_type(result, "BeamWidths")
    widths = [point.width for point in result.points]
    panels = {
        "length / reference length": (BLUE, [point.ratio for point in result.points]),
        "F₁ of tokens": (ORANGE, [point.quality for point in result.points]),
        "log p of a text": (RED, [point.logp for point in result.points]),
    }
    with canvas(path, 8.4, 2.6) as figure:
        for panel, (name, (colour, values)) in zip(figure.subplots(1, 3), panels.items(), strict=True):
            panel.plot(widths, values, "o-", ms=3, color=colour)
            panel.set_xscale("log", base=2)
            panel.set_xticks(widths, [str(width) for width in widths])
            panel.minorticks_off()
            panel.set_xlabel("beam width")
            panel.set_title(name, loc="left", fontsize=9)


def draw_loops(result: LoopRates, path: str | Path) -> None:
    """Draw the loop rate of each decoder, and log p by repetition of the loop."""
    check_type(result, "LoopRates")
    with canvas(path, 8.4, 1.4 + 0.3 * len(result.decoders)) as figure:
        left, right = figure.subplots(1, 2)
        names = [clip(loops.decoder, 34) for loops in result.decoders]
        left.barh(range(len(names)), [loops.rate for loops in result.decoders], 0.6, color=BLUE)
        left.set_yticks(range(len(names)), names, parse_math=False)
        left.invert_yaxis()
        left.set_xlim(0, 1)
        left.set_xlabel("share of texts that end in a loop")
        colours = (BLUE, ORANGE, RED, GREEN, SOFT)
        for index, loops in enumerate(loops for loops in result.decoders if loops.turns):
            turns = range(1, len(loops.turns) + 1)
            right.plot(turns, loops.turns, "o-", ms=3, color=colours[index % 5], label=loops.decoder)
        right.set_xlabel("repetition of the loop")
        right.set_ylabel("log p of a token")
        if any(loops.turns for loops in result.decoders):
            for text in right.legend(frameon=False, fontsize=7).get_texts():
                text.set_parse_math(False)


def draw_trap(result: LikelihoodTrap, path: str | Path) -> None:
    """Draw the likelihood trap: a dot for each text, a line for the mean of each kind of text."""
    check_type(result, "LikelihoodTrap")
    colours = {"repeated": RED, "human": BLUE, "shuffled": SOFT, "greedy": ORANGE, "sampled": ORANGE}
    with canvas(path, 6.4, 3.2) as figure:
        panel = figure.subplots()
        for x, (kind, values) in enumerate(result.by_text.items()):
            spread = [x + 0.28 * (2 * ((index * 0.618) % 1) - 1) for index in range(len(values))]
            panel.plot(spread, values, ".", ms=3, color=colours[kind], alpha=0.5)
            mean = result.kinds[kind].value
            panel.plot([x - 0.36, x + 0.36], [mean, mean], color=INK, lw=1.6)
        panel.set_xticks(range(len(result.by_text)), list(result.by_text))
        panel.set_ylabel("log p per token")


def draw_attention(
    result: AttentionMaps, path: str | Path, *, layer: int | None = None, head: int | None = None
) -> None:
    """Draw attention maps: one head with its tokens, or many heads as small images."""
    check_type(result, "AttentionMaps")
    layer, head = (
        None if number is None else as_int(name, number, at_least=0, advice="Count from 0.")
        for name, number in (("layer", layer), ("head", head))
    )
    chosen = [
        each
        for each in result.maps
        if (layer is None or each.layer == layer) and (head is None or each.head == head)
    ]
    if not chosen:
        raise ValueError(f"no head {shown(head)} in layer {shown(layer)}: both count from 0")
    if len(chosen) == 1:
        _draw_one(result, chosen[0], path)
        return
    columns = max(sum(each.layer == row for each in chosen) for row in {each.layer for each in chosen})
    rows = -(-len(chosen) // columns)
    with canvas(path, 0.6 + 0.8 * columns, 0.4 + 0.8 * rows) as figure:
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel in panels:
            panel.set_axis_off()
        for panel, each in zip(panels, chosen, strict=False):
            panel.imshow(each.weights_TS.numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
            panel.set_title(f"{each.layer}.{each.head}", fontsize=5, pad=1)


def _draw_one(result: AttentionMaps, one: AttentionMap, path: str | Path) -> None:
    across, down = len(result.sources), len(result.tokens)
    with canvas(path, 1.6 + 0.18 * across, 1.6 + 0.18 * down) as figure:
        panel = figure.subplots()
        panel.imshow(one.weights_TS.numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        style = {"fontsize": 6, "parse_math": False}
        panel.set_xticks(range(across), [label(token) for token in result.sources], rotation=90, **style)
        panel.set_yticks(range(down), [label(token) for token in result.tokens], **style)
        where = "to the source" if one.layer is None else f"layer {one.layer}, head {one.head}"
        panel.set_title(where, loc="left", fontsize=9, color=INK)


def draw_ranks(result: RankedTokens, path: str | Path) -> None:
    """Draw a next-token distribution by rank, and the tokens that each sampler keeps.

    Orange marks tokens that a sampler keeps although it rejects a more probable one.
    """
    check_type(result, "RankedTokens")
    ranks = range(len(result.p))
    width = max(4.0, 0.17 * len(result.p) + 2.2)
    with canvas(path, width, 3.4 + 0.22 * len(result.kept)) as figure:
        above, below = figure.subplots(2, sharex=True, height_ratios=(3.0, 0.28 * len(result.kept)))
        exceptions = {rank for rule in result.kept for rank in result.exceptions(rule)}
        colours = [ORANGE if rank in exceptions else BLUE for rank in ranks]
        floor = min(log10(max(p, 1e-300)) for p in result.p) - 0.3
        heights = [log10(max(p, 1e-300)) - floor for p in result.p]
        above.bar(ranks, heights, bottom=floor, color=colours, width=0.8)
        above.set_ylabel("log₁₀ p")
        prompt = result.prompt if len(result.prompt) <= 90 else "…" + result.prompt[-89:]
        above.set_title(f"“{prompt.replace(chr(10), '⏎')}” …", loc="left", fontsize=10, parse_math=False)
        if exceptions:
            above.text(
                *(0.995, 0.95),
                "orange: kept, although a more probable token is rejected",
                transform=above.transAxes,
                ha="right",
                va="top",
                color=ORANGE,
            )
        _draw_rules(below, result)
        below.set_xticks(list(ranks))
        below.set_xticklabels(
            [label(token) for token in result.tokens], rotation=90, fontsize=7, parse_math=False
        )
        for panel in (above, below):
            panel.margins(x=0.01)
        above.tick_params(bottom=False)


def _draw_rules(panel: Any, result: RankedTokens) -> None:
    for line, (name, kept) in enumerate(result.kept.items()):
        rejected = [rank for rank, keep in enumerate(kept) if not keep]
        exceptions = result.exceptions(name)
        regular = [rank for rank, keep in enumerate(kept) if keep and rank not in set(exceptions)]
        panel.scatter(
            rejected, [line] * len(rejected), s=7, facecolors="none", edgecolors=SOFT, linewidths=0.6
        )
        panel.scatter(regular, [line] * len(regular), s=22, color=BLUE)
        panel.scatter(exceptions, [line] * len(exceptions), s=22, color=ORANGE)
    panel.set_yticks(range(len(result.kept)))
    panel.set_yticklabels(list(result.kept), fontsize=8, color=INK)
    panel.set_ylim(len(result.kept) - 0.5, -0.5)


def draw_simplex(result: Feasible, path: str | Path) -> None:
    """Draw the basis-aware test on three tokens: the model's distributions and the feasible segment.

    After Finlayson et al. 2024, figures 2 and 3 (papers.bib: finlayson2024closing).
    """
    check_type(result, "Feasible")
    with canvas(path, 6.4, 4.4) as figure:
        panel = figure.subplots()
        panel.set_aspect("equal")
        panel.axis("off")
        panel.plot(*_to_triangle(np.eye(3)[[0, 1, 2, 0]]), color=INK, linewidth=1)
        box = {"color": ORANGE, "alpha": 0.16, "linewidth": 0, "label": f"p ≤ e^δ·p̂,  τ = {result.tau:.3f}"}
        panel.fill(*_to_triangle(_box_corners(result.upper)), **box)
        logits = np.linspace(-60, 60, 2001)[:, None] * result.weights
        curve = np.exp(logits - logits.max(axis=1, keepdims=True))
        curve /= curve.sum(axis=1, keepdims=True)
        panel.plot(*_to_triangle(curve), color=BLUE, linewidth=1.6, label="all outputs of the model")
        panel.plot(*_to_triangle(np.stack(result.line)), color=ORANGE, linestyle="--", label="Wᵀp = Wᵀp̂")
        thick = {"linewidth": 3.2, "solid_capstyle": "round"}
        panel.plot(*_to_triangle(np.stack(result.ends)), color=ORANGE, label="both: feasible", **thick)
        panel.plot(*_to_triangle(result.p[None]), "o", color=BLUE, markersize=8, label="p̂: the output")
        zeros = [end for end in result.ends if end.min() == 0]
        if zeros:
            style = {"color": GREEN, "markersize": 8, "label": "feasible, without a token"}
            panel.plot(*_to_triangle(np.stack(zeros)), "o", **style)
        corners = (
            (-0.03, -0.03, "right", "top"),
            (1.03, -0.03, "left", "top"),
            (0.5, 0.9, "center", "bottom"),
        )
        for i, (x, y, ha, va) in enumerate(corners):
            verdict = "may be impossible: rejected" if result.may_be_zero[i] else "must be possible: kept"
            alone = "kept" if result.p[i] >= result.tau else "rejected"
            text = f"token {i + 1}\np̂ = {result.p[i]:.3f}\n{verdict}\n(by p̂ ≥ τ alone: {alone})"
            colour = RED if result.may_be_zero[i] else INK
            panel.text(x, y, text, ha=ha, va=va, color=colour, linespacing=1.3)
        panel.legend(loc="upper left", bbox_to_anchor=(0.66, 1.0), frameon=False, fontsize=8.5)
        panel.set_xlim(-0.45, 1.5)
        panel.set_ylim(-0.28, 1.12)


def _to_triangle(p_N3: Array) -> tuple[Array, Array]:
    """Map distributions to points of a triangle: token 1 left, token 2 right, token 3 on top."""
    return p_N3[:, 1] + p_N3[:, 2] / 2, p_N3[:, 2] * np.sqrt(3) / 2


def _box_corners(upper: Array) -> Array:
    """Return the corners of { p ≤ upper } in the simplex: the triangle, cut parallel to its sides."""
    corners: list[Array] = list(np.eye(3))
    for i, limit in enumerate(upper):
        cut: list[Array] = []
        for a, b in zip(corners, corners[1:] + corners[:1], strict=True):
            if a[i] <= limit:
                cut.append(a)
            if (a[i] - limit) * (b[i] - limit) < 0:
                cut.append(a + (limit - a[i]) / (b[i] - a[i]) * (b - a))
        corners = cut
    return np.stack(corners)
