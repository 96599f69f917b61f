import math

import pytest
import torch

from unspool.data.batch import Batch
from unspool.models import MODELS
from unspool.models.encoders import ENCODERS
from unspool.objectives import (
    AttentionFocus,
    AuxiliarySettings,
    CrossEntropy,
    Masked,
    MaskedDiffusionLoss,
    WeightedSum,
)
from unspool.training.forward_pass import derive_seed, row_seeds
from unspool.training.run_state import Run
from unspool.training.settings import TrainSettings
from unspool.training.validation import Validation, validate


def test_by_hand(tiny):
    run = tiny(dropout=0.5)
    run.model.eval()
    nll = weight = 0.0
    for batch in run.valid:
        logp = run.model.head(run.model.hidden_for(batch))
        nll -= (logp.gather(-1, batch.targets_NU[..., None])[..., 0] * batch.weights_NU).sum().item()
        weight += batch.weight
    run.model.train()
    assert validate(run) == Validation(pytest.approx(nll / weight, rel=1e-6), None)
    assert run.model.training


def test_it_changes_nothing(tiny):
    run = tiny()
    before = run.weights()
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    assert validate(run) == validate(run)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(it, before[name]) for name, it in run.weights().items())
    assert run.optimizer.gradients() == []


class Half:
    """One of two processes; what the other would add is collected."""

    size = 2

    def __init__(self, rank):
        self.rank, self.asked = rank, None

    def sums(self, values):
        self.asked = values
        return list(values)


def test_every_batch_belongs_to_one_process_and_all_make_as_many_passes(tiny):
    run = tiny()
    whole = validate(run).nll
    passes, parts = [], []
    for rank in (0, 1):
        run = tiny()
        run.processes = Half(rank)
        original, calls = run.forward_pass.forward, []
        run.forward_pass.forward = lambda *args, original=original, calls=calls: (
            calls.append(1) or original(*args)
        )
        validate(run)
        passes.append(len(calls))
        parts.append(run.processes.asked)
    assert passes == [2, 2]  # of three batches
    (a, b, *_), (c, d, *_) = parts
    assert (a + c) / (b + d) == pytest.approx(whole)


def test_nothing_to_validate_on_is_refused(tiny):
    run = tiny()
    for batch in run.valid:
        batch.weights_NU.zero_()
    with pytest.raises(ValueError, match="validation"):
        validate(run)


def test_accuracy_by_hand(tiny):
    run = tiny(dropout=0.5)
    run.model.labels = tuple("abcdefghijk")  # as if its tokens were labels
    run.model.eval()
    right = weight = 0.0
    for batch in run.valid:
        best = run.model.head(run.model.hidden_for(batch)).argmax(-1)
        right += ((best == batch.targets_NU) * batch.weights_NU).sum().item()
        weight += batch.weight
    assert 0 < right < weight
    assert validate(run).accuracy == pytest.approx(right / weight)


BOS, EOS, V, LONGEST = 1, 2, 9, 6
SHAPE = {"vocab_size": V, "width": 8, "heads": 2, "inner_width": 8}
ENCODER = ENCODERS["transformer"](layers=1, width=8, heads=2, inner_width=8)
SHAPES = {
    "classifier": {"vocab_size": V, "labels": ("x", "y", "z"), "encoder": ENCODER},
    "masked_lm": {**SHAPE, "layers": 1, "eos": EOS},
    "masked_seq2seq": {
        **SHAPE,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "bos": BOS,
        "eos": EOS,
        "longest": LONGEST,
    },
    "rnn_lm": {"vocab_size": V, "width": 8, "layers": 1},
    "rnn_seq2seq": {"vocab_size": V, "width": 8, "bos": BOS, "eos": EOS},
    "tagger": {"vocab_size": V, "labels": ("x", "y", "z"), "encoder": ENCODER},
    "transformer_lm": {**SHAPE, "layers": 1},
    "transformer_seq2seq": {**SHAPE, "encoder_layers": 1, "decoder_layers": 1, "bos": BOS, "eos": EOS},
    "trigram": {"vocab_size": V, "width": 8, "inner_width": 8},
}
TEXTS = [[5, 6, 7, 8], [4], [8, 8, 3]]
"""Of 4, 1 and 3 tokens: 11 targets with their EOS, 8 tags, 3 labels."""


def validated(kind, objective=None, change=None):
    """A model of the kind and its validation on the texts, padded in one batch."""
    torch.manual_seed(0)
    model = MODELS[kind](**SHAPES[kind]).build().eval()
    with torch.no_grad():
        for it in model.parameters():
            it.copy_(torch.zeros_like(it) if change == "uniform" else it + 0.3 * torch.randn_like(it))
    if kind in ("classifier", "tagger"):
        targets = [[token % 3 for token in row[: None if kind == "tagger" else 1]] for row in TEXTS]
        inputs = TEXTS
    else:
        inputs, targets = [[BOS, *row] for row in TEXTS], [[*row, EOS] for row in TEXTS]
    lengths_N = torch.tensor([len(row) for row in inputs])
    targets_NU = padded(targets)
    weights_NU = (torch.arange(targets_NU.shape[1]) < torch.tensor([[len(row)] for row in targets])).float()
    source = [[*row[::-1], EOS] for row in TEXTS] if "seq2seq" in kind else None
    batch = Batch(
        padded(inputs),
        lengths_N,
        targets_NU,
        weights_NU,
        None if source is None else padded(source),
        None if source is None else torch.tensor([len(row) for row in source]),
    )
    main = Masked() if kind.startswith("masked") else CrossEntropy()
    run = Run(model, objective or main, Feed(), TrainSettings(updates=1), valid=[batch], seed=5)
    return model, batch, validate(run)


class Feed:
    per_epoch = 1


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_finds_all_alike_has_the_perplexity_of_the_number_of_choices(kind):
    for objective in [Masked(), MaskedDiffusionLoss()] if kind.startswith("masked") else [CrossEntropy(0.1)]:
        _, _, found = validated(kind, objective, "uniform")
        choices = 3 if kind in ("classifier", "tagger") else V
        # Three lengths are foreseen among LONGEST, for eleven tokens.
        length = 3 * math.log(LONGEST) / 11 if kind == "masked_seq2seq" else 0.0
        assert found.nll == pytest.approx(math.log(choices) + length, rel=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in MODELS if not kind.startswith("masked")])
def test_minus_log_p_by_hand(kind):
    model, batch, found = validated(kind)
    nll = right = count = 0
    with torch.no_grad():
        for row, text in enumerate(TEXTS):  # each text alone, without padding
            length = int(batch.lengths_N[row])
            U = int(batch.weights_NU[row].sum())
            source = None if batch.source_NS is None else batch.source_NS[[row], : len(text) + 1]
            alone = Batch(
                batch.inputs_NT[[row], :length],
                batch.lengths_N[[row]],
                batch.targets_NU[[row], :U],
                torch.ones(1, U),
                source,
                None if source is None else torch.tensor([len(text) + 1]),
            )
            logp_UV = model.head(model.hidden_for(alone))[0]
            targets_U = alone.targets_NU[0]
            nll -= logp_UV[range(U), targets_U].sum().item()
            right += (logp_UV.argmax(-1) == targets_U).sum().item()
            count += U
    assert count == {"classifier": 3, "tagger": 8}.get(kind, 11)
    assert found.nll == pytest.approx(nll / count, rel=1e-4)
    assert found.accuracy == (pytest.approx(right / count) if kind in ("classifier", "tagger") else None)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("objective", [Masked(), MaskedDiffusionLoss()])
@pytest.mark.parametrize("kind", ["masked_lm", "masked_seq2seq"])
def test_minus_log_p_of_hidden_tokens_by_hand(kind, objective, beside):
    trained = WeightedSum(objective, ((AttentionFocus(), AuxiliarySettings(0.5)),)) if beside else objective
    model, batch, found = validated(kind, trained)
    seeds_N = row_seeds([batch], derive_seed(5, "validation 0"))[0]
    sides = {name: getattr(batch, name) for name in ("source_NS", "source_lengths_N")}
    batch = Batch(
        batch.inputs_NT, batch.lengths_N, batch.targets_NU, batch.weights_NU, **sides, seeds_N=seeds_N
    )
    masked = objective.mask_batch(model, batch)
    nll = weight = lengths = 0.0
    for row, text in enumerate(TEXTS):
        prompt = [] if batch.source_NS is None else text[::-1]
        shown = masked.inputs_NT[row, : masked.lengths_N[row]].tolist()
        (logp_TV,) = model.fill([prompt], [shown])
        for place, token in enumerate([*text, EOS]):
            if shown[place] == V:
                nll -= float(masked.weights_NU[row, place]) * logp_TV[place, token].item()
                weight += float(masked.weights_NU[row, place])
        if batch.source_NS is not None:
            (foreseen,) = model.lengths([prompt], [LONGEST], LONGEST)
            lengths -= dict(foreseen)[len(text) + 1]
    assert found.nll == pytest.approx(nll / weight + lengths / 11, rel=1e-4)
