"""What several claims share: small models with one recipe, measures of their texts, and English prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

import unspool as us
from unspool.data import PreparedData, prepare
from unspool.data.known_languages import KnownLanguage, ZipfMarkov
from unspool.data.known_languages.made_data import is_for_validation
from unspool.data.known_languages.tasks import TASKS
from unspool.evaluate.diversity import rep_n
from unspool.evaluate.known_truth import TextTruth, text_truth
from unspool.evaluate.teacher_forcing import text_nats, windows
from unspool.lab.claim import silent
from unspool.plugins import allow_code
from unspool.training import training_loop
from unspool.training.recipe import Recipe, as_recipe
from unspool.training.run import start_run

Table = Mapping[str, Any]

RNN_LM: Table = {"kind": "rnn_lm", "cell": "gru", "width": 32}
TRANSFORMER_LM: Table = {"kind": "transformer_lm", "width": 32, "heads": 4, "layers": 2, "inner_width": 64}
TRANSFORMER_SEQ2SEQ: Table = {
    **{"kind": "transformer_seq2seq", "width": 32, "heads": 4, "inner_width": 64},
    **{"encoder_layers": 1, "decoder_layers": 2},
}


def language(kind: str, seed: int, sentences: int = 3000, /, **settings: Any) -> dict[str, Any]:
    """Return [data] of a recipe: sentences of an artificial language."""
    made = {"kind": kind, **settings}
    return {"kind": "language", "language": made, "train": sentences, "valid": 0, "seed": seed}


def task(kind: str, seed: int, pairs: int = 3000, /, **settings: Any) -> dict[str, Any]:
    """Return [data] of a recipe: pairs of a small task, a tenth of the sources held out."""
    return {"kind": "task", "task": {"kind": kind, **settings}, "train": pairs, "valid": 50, "seed": seed}


def recipe(
    data: Table, model: Table, updates: int, seed: int, *, lr: float = 5e-3, **others: Any
) -> dict[str, Any]:
    """Return a recipe. `others` replace its tables, except for [train], which they extend."""
    return {
        "seed": seed,
        "data": dict(data),
        **({"tokenizer": {"kind": "words"}} if data["kind"] == "task" else {}),
        "batches": {"kind": "bucketed", "tokens": 512},
        "model": dict(model),
        "schedule": {"kind": "cosine", "warmup": max(1, updates // 20)},
        **{key: value for key, value in others.items() if key != "train"},
        "train": {
            **{"updates": updates, "lr": lr, "threads": 1, "final": "last"},
            **{"validate_every": 10**6, "checkpoint_every": 10**6},
            **others.get("train", {}),
        },
    }


_last_prepared: dict[str, PreparedData] = {}
"""The data of the last model by their settings: the models of a claim often share them."""


def _prepare(made: Recipe) -> PreparedData:
    settings = made.data, made.tokenizer, made.batches, made.seed
    key = repr(settings)
    if key not in _last_prepared:
        _last_prepared.clear()
        _last_prepared[key] = prepare(*settings)
    return _last_prepared[key]


@torch.enable_grad()
def train_model(
    data: Table, model: Table, updates: int, seed: int, *, losses: list[float] | None = None, **others: Any
) -> Any:
    """Train a model of a recipe in memory; `losses` receives −log p of a token for every update."""
    with allow_code(True):
        made = as_recipe(recipe(data, model, updates, seed, **others))
    run = start_run(made, _prepare(made))
    for done in training_loop(run):
        if losses is not None:
            losses.append(done.nll)
    return run.model.eval()


def held_out(kind: str, count: int, seed: int, **settings: Any) -> list[tuple[str, str]]:
    """Return `count` different pairs of a task that are not used for training."""
    pairs_of, rng, pairs = TASKS[kind](**settings), Random(seed), dict[str, str]()
    for _ in range(1000 * count):
        source, target = pairs_of.pair(rng)
        if is_for_validation(source):
            pairs[source] = target
        if len(pairs) == count:
            return list(pairs.items())
    raise ValueError(f"found only {len(pairs)} of {count} held-out pairs of {kind} with {settings}")


def share_right(
    model: Any, pairs: Sequence[tuple[str, str]], max_new_tokens: int, decoder: Any = "Greedy"
) -> float:
    """Return the share of the targets that a decoder finds."""
    sources = [source for source, _ in pairs]
    outs = us.generate(model, sources, decoder, max_new_tokens=max_new_tokens, seed=0)
    return sum(out.text == target for out, (_, target) in zip(outs, pairs, strict=True)) / len(pairs)


def share_copied(model: Any, length: int, count: int, symbols: int) -> float:
    """Return the share of held-out rows of one length that is copied without error."""
    pairs = held_out("copy", count, length, symbols=symbols, shortest=length, longest=length)
    return share_right(model, pairs, length + 1)


def sample_sentences(model: Any, truth: KnownLanguage[Any], decoder: Any, count: int, seed: int) -> TextTruth:
    """Generate sentences and compare them with the language."""
    prompts = [[truth.bos]] * count
    outs = us.generate(model, prompts, decoder, max_new_tokens=60, seed=seed, batch_size=128)
    return text_truth([out.tokens for out in outs], truth)


@torch.inference_mode()
def excess_loss(model: Any, truth: KnownLanguage[Any], sentences: int, seed: int) -> float:
    """Return the cross-entropy of the model minus that of the truth, in nats per token, on new sentences."""
    rng = Random(seed)
    sentences_drawn = [truth.sample(rng) for _ in range(sentences)]
    best = -sum(truth.log_prob(row) for row in sentences_drawn)
    rows = [(truth.bos, *row, truth.eos) for row in sentences_drawn]
    nats, counts = text_nats(model, windows(rows), batch=32)
    return (sum(nats) - best) / sum(counts)


class NarrowTrigram(nn.Module):
    """A trigram model with a narrow softmax.

        log p̂(· | two words) = log_softmax(W tanh(A [e₁ ; e₂])),   W of `width` columns

    Bengio et al. 2003 (papers.bib: bengio2003neural). The body is the same for all widths, so only the
    softmax limits narrower models.
    """

    def __init__(self, vocabulary: int, width: int, body: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, body)
        self.layers = nn.Sequential(nn.Linear(2 * body, 4 * body), nn.Tanh(), nn.Linear(4 * body, width))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, contexts_N2: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.embed(contexts_N2).flatten(1)))
        return logits.log_softmax(-1)


def trigram_contexts(language: ZipfMarkov, sentences: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the two previous words and the next word at every position of sentences."""
    rng, contexts, nexts = Random(seed), [], []
    for _ in range(sentences):
        row = [*language.start(), *language.sample(rng), language.eos]
        contexts += [row[t - 2 : t] for t in range(2, len(row))]
        nexts += row[2:]
    return torch.tensor(contexts), torch.tensor(nexts)


def sample_contexts(language: ZipfMarkov, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return `count` contexts of held-out sentences (C, 2), and the true next words after them (C, V)."""
    context_N2, _ = trigram_contexts(language, count, seed + 1)
    order_N = torch.randperm(len(context_N2), generator=torch.Generator().manual_seed(seed))
    context_C2 = context_N2[order_N[:count]]
    return context_C2, torch.from_numpy(language.rows(context_C2.numpy()))


@torch.enable_grad()
def train_narrow(
    language: ZipfMarkov,
    width: int,
    sentences: int,
    updates: int,
    batch: int,
    seed: int,
    tick: Callable[[], None] = silent,
) -> NarrowTrigram:
    """Train a `NarrowTrigram`; `tick` is called after every update."""
    torch.manual_seed(seed)
    model = NarrowTrigram(language.vocab_size, width)
    context_N2, next_N = trigram_contexts(language, sentences, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    for _ in range(updates):
        rows_B = torch.randint(len(next_N), (batch,))
        loss = nn.functional.nll_loss(model(context_N2[rows_B]), next_N[rows_B])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        tick()
    return model.eval()


def at_optimum(matrix_VD: Tensor, true_CV: Tensor, pull: float = 1e-6) -> Tensor:
    """Return log p̂ of the hidden vectors with the least cross-entropy, by damped Newton steps.

        h* = argmin_h −Σ p* log softmax(W h),   with Wᵀp̂ = Wᵀp*

    Finlayson et al. 2024, §4, Theorem 2 (papers.bib: finlayson2024closing). If the optimum is infinite,
    `pull` towards 0 keeps the vector finite.
    """
    w_VD = matrix_VD.double() - matrix_VD.double().mean(dim=0)
    h_CD, goal_CD = w_VD.new_zeros(len(true_CV), w_VD.shape[1]), true_CV.double() @ w_VD
    for _ in range(200):
        p_CV = (h_CD @ w_VD.T).softmax(-1)
        mean_CD = p_CV @ w_VD
        curvature_CDD = torch.einsum("cv,vd,ve->cde", p_CV, w_VD, w_VD)
        curvature_CDD -= mean_CD[:, :, None] * mean_CD[:, None, :]
        curvature_CDD += max(pull, 1e-9) * torch.eye(w_VD.shape[1], dtype=w_VD.dtype)
        step_CD = torch.linalg.solve(curvature_CDD, mean_CD - goal_CD + pull * h_CD)
        longest_C1 = (step_CD @ w_VD.T).abs().amax(-1, keepdim=True)
        h_CD -= step_CD / longest_C1.clamp(min=1.0)
    return (h_CD @ w_VD.T).log_softmax(-1)


def continue_texts(
    model: Any, prompts: Sequence[Any], decoder: Any, tokens: int, seed: int
) -> list[tuple[int, ...]]:
    """Return the tokens after each prompt; `decoder` receives the transform that forbids the end."""
    outs = us.generate(model, list(prompts), decoder(us.MinLength(tokens)), max_new_tokens=tokens, seed=seed)
    return [out.tokens for out in outs]


def repetition(texts: Sequence[Sequence[int]]) -> list[float]:
    return [rep_n(text, 4) for text in texts]


def loops(texts: Sequence[Sequence[int]]) -> list[float]:
    """Return for each text whether it ends in a loop."""
    return [float(us.find_loop(text) is not None) for text in texts]


def differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [one - two for one, two in zip(first, second, strict=True)]


# Written for this file in the style of the model's training text, which does not contain it.
OPENINGS: list[str] = [
    "In the third year of his reign, the king",
    "Now the men of the city came out",
    "He said to his servants, Go up to",
    "The river was full, and the people could not",
    "When the shepherd had found his sheep, he",
    "And it happened in the evening that the woman",
    "They took bread and water, and went",
    "Behold, a man stood by the gate and",
    "The words of the prophet were written in",
    "After these things there was a great",
    "Then the elders answered the young man and",
    "His father gave him the field which",
    "Don't be afraid of the night, for",
    "The children came to the house of their",
    "She rose early in the morning and",
    "In those days the land had rest, and",
]

PASSAGES: list[str] = [
    "The king sent messengers through all the land, to every town and village, saying, Let each man bring "
    "his grain to the storehouse before winter. So the people brought it, some on their backs and some on "
    "donkeys.",
    "A certain man had a vineyard on a hill by the sea. He built a wall around it, dug a well, and gave it "
    "to his two sons. The elder worked in the heat of the day, but the younger slept under the fig tree.",
    "When the storm had passed, the sailors looked for the shore, but they saw nothing except water. Then "
    "the oldest of them said, Throw the cargo into the sea, and keep only the bread.",
    "The woman took oil and flour, and made cakes for the travelers, for she had seen them coming from far "
    "away. They ate in her house that night, and in the morning they blessed her.",
    "My son, listen to the words of your mother, and don't forget what your father taught you. A lamp is "
    "good in the dark, but a wise friend is better than a lamp.",
    "The elders sat in the gate and judged between the two brothers. One said, The field is mine, for I "
    "plowed it. The other said, It is mine, for our father gave it to me before he died.",
    "In the morning the priest opened the doors of the temple and lit the lamps. Many people were waiting "
    "in the courtyard, and each of them had brought an offering of wheat or oil.",
    "They came to a valley where there was no water, and the animals were weak. Then a young man climbed "
    "the rock and saw green grass on the other side, and he called down to the others.",
]

OPENING_TOKENS = 12
"""Tokens by which each seed continues the openings, so that it has prompts of its own."""


def prompts_of(model: Any, count: int, seed: int) -> list[tuple[int, ...]]:
    """Return the first `count` openings, each with its own continuation by top-p sampling."""
    decoder = us.Sample(us.MinLength(OPENING_TOKENS), us.TopP(0.9))
    outs = us.generate(model, OPENINGS[:count], decoder, max_new_tokens=OPENING_TOKENS, seed=seed)
    starts = [model.tokenizer.encode(opening) for opening in OPENINGS]
    return [(*start, *out.tokens) for start, out in zip(starts, outs, strict=False)]
