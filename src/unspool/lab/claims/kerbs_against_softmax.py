"""Claim: KerBS predicts better than a softmax in a language of words with several senses.

    P(y = i) = Σ_j P(s = ⟨i,j⟩),   P(s) = softmax of K_θ(h, w_s)     against   softmax(W h)

Miao et al. 2019, §4 and appendix B (papers.bib: miao2019kernelized).
"""

from __future__ import annotations

from typing import Any

from unspool.data.known_languages import SenseChain
from unspool.lab.claim import Claim, Numbers, Progress, kerbs, tracked
from unspool.lab.small_models import excess_loss, language, train_model
from unspool.plots.seeds import bars, chart

WORDS = 80
REALLOCATE = [{"kind": "kerbs_reallocate", "every": 20, "share": 0.1, "rate": 0.05}]
SOFTMAX = {"kind": "softmax", "tied": False}
KERBS = {"kind": "kerbs", "senses": 2.0}
HEADS: dict[str, dict[str, Any]] = {
    "softmax": {"width": 16, "head": SOFTMAX},
    "softmax, wider": {"width": 21, "head": SOFTMAX},
    "KerBS": {"width": 16, "head": KERBS, "hooks": REALLOCATE},
    "KerBS, no kernel": {"width": 16, "head": {**KERBS, "kernel": False}, "hooks": REALLOCATE},
    "KerBS, no allocation": {"width": 16, "head": KERBS},
}


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train each head on the same sentences for the same number of updates."""
    truth = SenseChain(word_count=WORDS, seed=seed)
    data = language("senses", seed, 4000, word_count=WORDS, seed=seed)
    found: dict[str, float] = {}
    for name, shape in tracked(HEADS.items(), progress):
        model = {"kind": "rnn_lm", "cell": "gru", "width": shape["width"], "head": shape["head"]}
        made = train_model(data, model, 30 if quick else 400, seed, lr=1e-2, hooks=shape.get("hooks", []))
        found[name] = excess_loss(made, truth, 60 if quick else 300, 1000 + seed)
        found[f"{name}: weights"] = sum(it.numel() for it in made.parameters())
    return found


CLAIM = Claim(
    name="kerbs_against_softmax",
    statement="A head with several senses per word, a kernel and dynamic reallocation of senses "
    "(KerBS) predicts better than a softmax, and each of the three helps.",
    source=kerbs("appendix B, with the results of section 4"),
    measured="GRU language models (width 16) of an artificial language in which words have one to four "
    "senses: 400 updates, the same batches. Cross-entropy on held-out sentences less that of the truth. The "
    "wider softmax (21) has about as many weights as KerBS with two senses a word.",
    criterion={
        "KerBS is nearer to the truth than a softmax of the same width": lambda n: n["KerBS"] < n["softmax"],
        "… and than one with as many weights": lambda n: n["KerBS"] < n["softmax, wider"],
        "… and than itself without the kernel": lambda n: n["KerBS"] < n["KerBS, no kernel"],
        "… and than itself without reallocation": lambda n: n["KerBS"] < n["KerBS, no allocation"],
    },
    measure=measure,
    draw=chart(bars({name: name for name in HEADS}, "nats a token above the truth (less is better)")),
    limits="The paper's results are BLEU of translations and perplexities of real text with models hundreds "
    "of times as large; benchmarks/heads.py measures those on real text.",
)
