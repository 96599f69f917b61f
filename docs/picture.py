"""Draw docs/img/degeneration.svg, the README's picture: `python docs/picture.py` (a minute on one core).

The same model and prompt under three decoders: how probable the model itself finds every token they choose.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

import unspool as us
from unspool.evaluate.comparison import Answer

PROMPT = "The old lighthouse keeper climbed the stairs and"
PANELS = (
    ("Greedy()", "falls into a loop, and grows surer of it with every turn", "#c0392b"),
    ("Sample()", "strays: again and again a token that the model finds improbable", "#8e44ad"),
    ("Sample(TopP(0.9))", "stays between the two", "#2471a3"),
)
NEW_TOKENS, SEED = 200, 1


def draw(panel: Axes, answer: Answer, title: str, colour: str) -> None:
    """log p of every token as a line down from 0: the deeper, the less probable."""
    measures = answer.measures()
    loop = "" if answer.loop is None else f", loop of {answer.loop} tokens"
    facts = f"mean log p {measures['mean_logp']:.2f}, rep-4 {measures['rep_4']:.2f}{loop}"
    panel.vlines(range(len(answer.logps)), answer.logps, 0, color=colour, linewidth=1.6)
    panel.set_title(title, loc="left", fontsize=10)
    panel.text(0.995, 0.05, facts, transform=panel.transAxes, ha="right", color="#555555")
    panel.set_ylabel("log p")
    panel.spines[["right", "bottom"]].set_visible(False)
    panel.tick_params(bottom=False)
    panel.margins(x=0.01)


def main() -> None:
    """Generate, measure, draw."""
    model = us.load("smollm2")
    plt.rcParams |= {"svg.fonttype": "path", "svg.hashsalt": "unspool", "font.size": 9}
    figure, panels = plt.subplots(len(PANELS), sharex=True, sharey=True, figsize=(8, 5), layout="constrained")
    for panel, (spec, claim, colour) in zip(panels, PANELS, strict=True):
        out = us.generate(model, PROMPT, us.parse(spec), max_new_tokens=NEW_TOKENS, seed=SEED)
        draw(panel, Answer(out.text, out.tokens, out.logps, out.finish_reason), f"{spec} {claim}", colour)
    panels[-1].set_xlabel(f"tokens after “{PROMPT}” (SmolLM2-135M)")
    target = Path(__file__).parent / "img" / "degeneration.svg"
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, facecolor="white", metadata={"Date": None, "Creator": "unspool"})


if __name__ == "__main__":
    main()
