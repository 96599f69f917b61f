"""Models learn what they should, from a recipe to answers on sources that they have never seen."""

from functools import cache
from random import Random

import pytest
import torch

import unspool as us
from unspool.data.known_languages.made_data import is_for_validation
from unspool.data.known_languages.tasks import TASKS
from unspool.training import train

LONGEST, HELD_OUT = 6, 400
RNN = {"kind": "rnn_seq2seq", "width": 32, "context_kind": "additive"}
TRANSFORMER = {
    "kind": "transformer_seq2seq",
    "width": 32,
    "heads": 4,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "inner_width": 64,
    # Rotary positions turn what a side says to itself; to find the same place on the other side takes longer.
    "positions": "sinusoidal",
}
MODELS = {"rnn": (RNN, 200, 1e-2), "transformer": (TRANSFORMER, 350, 5e-3)}
"""With their updates and learning rate."""


def recipe(data, model, updates, lr=1e-2):
    return {
        "seed": 1,
        "data": data,
        "tokenizer": {"kind": "words"},
        "batches": {"kind": "bucketed", "tokens": 768},
        "model": model,
        "schedule": {"kind": "cosine", "warmup": 30},
        "train": {
            "updates": updates,
            "lr": lr,
            "validate_every": updates,
            "checkpoint_every": updates,
            "threads": 1,
        },
    }


@cache
def learnt(task, kind):
    """Trained once for all tests of this file."""
    data = {"kind": "task", "task": {"kind": task, "longest": LONGEST}, "train": 8000, "valid": 100}
    return train(recipe(data, *MODELS[kind]))


def held_out(task, count=HELD_OUT, shortest=1):
    """Different pairs, from the tenth of all sources that nothing is learnt from."""
    task, rng, found = TASKS[task](shortest=shortest, longest=LONGEST), Random(1), {}
    while len(found) < count:
        source, target = task.pair(rng)
        if is_for_validation(source):
            found[source] = target
    return found


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("copy", "transformer"),
        ("reverse", "rnn"),
        pytest.param("copy", "rnn", marks=pytest.mark.long),
        pytest.param("sort", "rnn", marks=pytest.mark.long),
    ],
)
def test_a_task_is_learnt(task, kind):
    pairs = held_out(task)
    outs = us.generate(learnt(task, kind), list(pairs), us.Greedy(), max_new_tokens=LONGEST + 2)
    right = [out.text == target for out, target in zip(outs, pairs.values(), strict=True)]
    assert sum(right) >= 0.99 * HELD_OUT


def attention_to_source(model, task):
    """Where the model looks when it says each symbol of the answers: (rows, symbols, symbols)."""
    pairs = held_out(task, 50, shortest=LONGEST)
    targets = torch.tensor([model.tokenizer.encode(target) for target in pairs.values()])
    step, state = model.start([model.tokenizer.encode(source) for source in pairs])
    seen = [step.attention]
    for tokens in targets.T[:-1]:
        step, state = model.step(state, tokens)
        seen.append(step.attention)
    assert targets.shape == (50, LONGEST)
    return torch.stack(seen, dim=1)


@pytest.mark.parametrize(("task", "kind"), [("copy", "transformer"), ("reverse", "rnn")])
def test_attention_follows_what_is_copied(task, kind):
    attention = attention_to_source(learnt(task, kind), task)
    torch.testing.assert_close(attention.sum(-1), torch.ones(50, LONGEST))
    # EOS ends the source: it is the last column.
    symbols = attention[..., :LONGEST]
    along = symbols.flip(2) if task == "reverse" else symbols
    far = (torch.arange(LONGEST)[:, None] - torch.arange(LONGEST)).abs() > 1
    assert along.mean(0).argmax(-1).tolist() == list(range(LONGEST))
    assert along.masked_fill(far, 0).sum(-1).mean() > 0.8


THINGS = ["film", "book", "song", "play", "dish", "hotel", "beach", "tour", "game", "plan"]
GOOD = ["good", "great", "lovely", "clever", "warm", "bright", "fine", "superb"]
BAD = ["bad", "poor", "dull", "cold", "slow", "weak", "grim", "bland"]


def review(rng):
    """What counts is said after "but", and "not" turns it round: words alone do not tell the verdict."""
    clauses, verdict = [], False
    for _ in range(2):
        good, turned = rng.random() < 0.5, rng.random() < 0.5
        word = rng.choice(GOOD if good else BAD)
        clauses.append(f"the {rng.choice(THINGS)} was {'not ' if turned else ''}{word}")
        verdict = good != turned
    return " but ".join(clauses), "praise" if verdict else "blame"


def differing(make, count):
    rng, found = Random(1), {}
    while len(found) < count:
        text, label = make(rng)
        found[text] = label
    return list(found.items())


def test_sentiment_is_learnt(tmp_path):
    rows = differing(review, 2400)
    file = tmp_path / "reviews.tsv"
    file.write_text("".join(f"{verdict}\t{text}\n" for text, verdict in rows[:2000]), encoding="utf-8")
    encoder = {"kind": "rnn", "width": 32}
    data = {"kind": "labelled", "train": str(file), "valid_lines": 100}
    model = train(recipe(data, {"kind": "classifier", "encoder": encoder}, 150))
    found = us.predict(model, [text for text, _ in rows[2000:]])
    right = [it.label == verdict for it, (_, verdict) in zip(found, rows[2000:], strict=True)]
    assert sum(right) > 0.95 * len(right)


BOTH = ["fish", "watch", "drink", "plant", "paint", "land", "play", "work"]
"""Nouns after an article or an adjective, verbs after a pronoun or an adverb."""


def tagged(rng):
    words = []
    for _ in range(rng.randint(1, 3)):
        words += [("and", "CONJ")] if words else []
        words.append((rng.choice(["they", "we", "you", "people"]), "PRON"))
        words += [(rng.choice(["often", "never", "now"]), "ADV")] if rng.random() < 0.4 else []
        words.append((rng.choice([*BOTH, "see", "want"]), "VERB"))
        words.append((rng.choice(["the", "a", "this"]), "DET"))
        words += [(rng.choice(["old", "small", "red"]), "ADJ")] if rng.random() < 0.4 else []
        words.append((rng.choice([*BOTH, "house", "river"]), "NOUN"))
    return tuple(" ".join(column) for column in zip(*words, strict=True))


def test_tags_are_learnt_from_their_neighbours(tmp_path):
    rows = differing(tagged, 1400)
    file = tmp_path / "tagged.tsv"
    file.write_text("".join(f"{words}\t{tags}\n" for words, tags in rows[:1000]), encoding="utf-8")
    encoder = {"kind": "transformer", "width": 32, "heads": 4, "inner_width": 64, "layers": 1}
    data = {"kind": "tagged", "train": str(file), "valid_lines": 100}
    model = train(recipe(data, {"kind": "tagger", "encoder": encoder}, 150))
    found = us.predict(model, [words for words, _ in rows[1000:]])
    # A word that is always the same part of speech needs no neighbours: only the others are counted.
    right = [
        it.label == tag
        for tags, (words, truth) in zip(found, rows[1000:], strict=True)
        for it, word, tag in zip(tags, words.split(), truth.split(), strict=True)
        if word in BOTH
    ]
    assert len(right) > 1000
    assert sum(right) > 0.95 * len(right)
