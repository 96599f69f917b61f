"""Claim: with teacher forcing, one parallel pass gives the probabilities of step-by-step reading.

    log p(y | x) = Σ_j log p(y_j | y_{<j}, x)

He He's lecture, "Training" and "Decoder attention masking".
"""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from unspool.lab.claim import Claim, Numbers, Progress, lecture, tracked
from unspool.lab.small_models import RNN_LM, TRANSFORMER_LM, language, task, train_model
from unspool.plots.seeds import bars, chart

SEQ2SEQ = {
    **{"kind": "transformer_seq2seq", "width": 32, "heads": 4, "inner_width": 64},
    **{"encoder_layers": 1, "decoder_layers": 2},
}
MODELS: dict[str, Any] = {
    "recurrent": RNN_LM,
    "Transformer": TRANSFORMER_LM,
    "recurrent encoder–decoder": {"kind": "rnn_seq2seq", "width": 32, "context_kind": "additive"},
    "Transformer encoder–decoder": SEQ2SEQ,
}


@torch.no_grad()
def apart(model: Any, rng: Random, length: int) -> tuple[float, float]:
    """Return the largest difference, and the effect of a changed last word on earlier positions."""
    words = range(4, model.vocab_size)
    tokens_T = [rng.choice(words) for _ in range(length)]
    source = [rng.choice(words) for _ in range(6)]
    model.engine = "torch"
    if model.is_encoder_decoder:
        step, state = model.start([source])
        rows = torch.tensor([[model.ends.bos, *tokens_T]])
    else:
        step, state = model.start([[model.tokenizer.bos_id, tokens_T[0]]])
        rows = torch.tensor([[model.tokenizer.bos_id, *tokens_T]])
    said = [step.logp_NV]
    for token in tokens_T[0 if model.is_encoder_decoder else 1 :]:
        step, state = model.step(state, torch.tensor([token]))
        said.append(step.logp_NV)
    stepwise = torch.cat(said)
    lengths, framed = (
        torch.tensor([7]),
        torch.tensor([[*source, min(model.ends.eos)]]) if model.is_encoder_decoder else None,
    )
    parallel = model(framed, lengths, rows) if model.is_encoder_decoder else model(rows)
    changed = rows.clone()
    changed[0, -1] = words[0] if changed[0, -1] != words[0] else words[1]
    other = model(framed, lengths, changed) if model.is_encoder_decoder else model(changed)
    parallel_TV = parallel[0, -len(stepwise) :]
    past = float((other[0, :-1] - parallel[0, :-1]).abs().max())
    return float((stepwise - parallel_TV).abs().max()), past


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure four kinds of models on random words."""
    found: dict[str, Any] = {}
    for name, shape in tracked(MODELS.items(), progress):
        data = (
            task("copy", seed)
            if "seq2seq" in shape["kind"]
            else language("zipf_markov", seed, word_count=100)
        )
        model = train_model(data, shape, 20 if quick else 150, seed)
        difference, past = apart(model, Random(seed), 40)
        found[f"{name}: largest difference of log p"] = difference
        found[f"{name}: a changed last word changes earlier log p by"] = past
    return found


CLAIM = Claim(
    name="teacher_forcing",
    statement="Training with right prefixes reads a whole text in one pass: it gives the same probabilities "
    "as reading step by step, and later words have no effect.",
    source=lecture("Training; decoder attention masking", "vaswani2017attention"),
    measured="Four kinds of models, shortly trained, read 40 random words at once and one by one (both by "
    "torch). Then the last word is changed, and the probabilities before it are compared.",
    criterion={
        "no log p differs by more than 1e-4, in any model": lambda n: all(
            n[f"{name}: largest difference of log p"] <= 1e-4 for name in MODELS
        ),
        "a changed last word changes no earlier log p (at most 1e-6), in any model": lambda n: all(
            n[f"{name}: a changed last word changes earlier log p by"] <= 1e-6 for name in MODELS
        ),
    },
    measure=measure,
    draw=chart(
        bars(
            {f"{name}: largest difference of log p": name for name in MODELS},
            "largest difference of log p, parallel against step by step",
            limit=1e-4,
            xscale="log",
            xlim=(1e-8, 1e-3),
        )
    ),
)
