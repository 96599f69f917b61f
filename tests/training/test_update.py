import math
from dataclasses import fields

import pytest
import torch

import unspool as us
from unspool.data.batch import Batch
from unspool.interfaces import Loss, Objective
from unspool.models import (
    ClassifierConfig,
    MaskedLMConfig,
    MaskedSeq2SeqConfig,
    RNNConfig,
    TaggerConfig,
    TransformerConfig,
    TransformerSeq2SeqConfig,
)
from unspool.models.encoders import ENCODERS
from unspool.objectives import OBJECTIVES, AuxiliarySettings, CrossEntropy, Masked, WeightedSum
from unspool.tokenization import train_characters
from unspool.training.run_state import Run
from unspool.training.settings import TrainSettings
from unspool.training.update import apply_update, micro_batches


class Rows:
    """The rows of one batch, dealt out as several unequal ones."""

    per_epoch = 100

    def __init__(self, whole, cuts):
        self.parts = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(whole.inputs_NT)], strict=True)]
        self.whole = whole

    def batch(self, number):
        part = self.parts[number % len(self.parts)]
        sides = {it.name: getattr(self.whole, it.name) for it in fields(Batch)}
        return Batch(**{name: it if it is None else it[part] for name, it in sides.items()})


def gradients(run):
    seen = {}
    original = run.optimizer.step

    def step(t, lr):
        for name, it in run.optimizer.named.items():
            seen[name] = torch.zeros_like(it) if it.grad is None else it.grad.clone()
        original(t, lr)

    run.optimizer.step = step
    done, _ = apply_update(run)
    return done, seen


def test_batches_added_up_are_the_big_batch(tiny):
    whole = tiny().feed.batch(0)
    whole = Batch(*(torch.cat([getattr(it, name) for it in (whole, whole)]) for name in ("inputs_NT", "lengths_N", "targets_NU", "weights_NU")))  # fmt: skip
    big, big_gradient = gradients(tiny(dropout=0.0, feed=Rows(whole, []), clip=0.0))
    small, gradient = gradients(tiny(dropout=0.0, feed=Rows(whole, [1, 4]), clip=0.0, accumulate=3))
    assert small.loss == pytest.approx(big.loss, rel=1e-6)
    assert small.weight == big.weight == whole.weight
    for name, it in big_gradient.items():
        torch.testing.assert_close(gradient[name], it, rtol=1e-5, atol=1e-7)


TEXT = train_characters(["abcdef"])
SHAPE = {"vocab_size": TEXT.vocab_size, "width": 16, "heads": 2, "inner_width": 16}
BOTH = {"encoder_layers": 2, "decoder_layers": 2}
ENCODER = ENCODERS["transformer"](layers=2, width=16, heads=2, inner_width=16)
LABELS = {"vocab_size": TEXT.vocab_size, "labels": ("x", "y", "z"), "encoder": ENCODER}
MODELS = {
    "transformer_lm": TransformerConfig(**SHAPE, layers=2),
    "rnn_lm": RNNConfig(vocab_size=TEXT.vocab_size, width=8, layers=1),
    "transformer_seq2seq": TransformerSeq2SeqConfig(**SHAPE, **BOTH),
    "masked_lm": MaskedLMConfig(**SHAPE, layers=2),
    "masked_seq2seq": MaskedSeq2SeqConfig(**SHAPE, **BOTH),
    "classifier": ClassifierConfig(**LABELS),
    "tagger": TaggerConfig(**LABELS),
}
LINES = ["abcab", "f", "fedcbafedcba", "f", "abcabcab", "dd", "abcab", "eeeeee"]  # some of them twice
BANK = (
    "# text = ab c d\n1\tab\t_\t_\t_\t_\t2\tnsubj\t_\t_\n2\tc\t_\t_\t_\t_\t0\troot\t_\t_\n3\td\t_\t_\t_\t_\t2\tobj\t_\t_\n\n"
    "# text = d ab\n1\td\t_\t_\t_\t_\t2\tobj\t_\t_\n2\tab\t_\t_\t_\t_\t0\troot\t_\t_\n"
)
TEXT_OF_BANK = train_characters([" abcd"])


def model_and_rows(kind, text=TEXT):
    """A model with random weights that are large enough for texts to differ, and eight unequal rows."""
    torch.manual_seed(1)
    model = MODELS[kind].build(text)
    with torch.no_grad():
        for it in model.parameters():
            it += 0.3 * torch.randn_like(it)
    model.double()  # the gradient of an expected reward is a small difference of large terms
    eos = min(text.eos_ids)
    rows = [text.encode(line) for line in LINES]
    whole = [[text.bos_id, *row, eos] for row in rows]
    if kind in ("classifier", "tagger"):
        inputs, targets = (
            rows,
            [[token % 3 for token in row[: None if kind == "tagger" else 1]] for row in rows],
        )
    else:
        inputs, targets = [row[:-1] for row in whole], [row[1:] for row in whole]
    inputs_NT, lengths_N = padded(inputs)
    targets_NU, counts_N = padded(targets)
    weights_NU = (torch.arange(targets_NU.shape[1]) < counts_N[:, None]).double()
    sides = [inputs_NT, lengths_N, targets_NU, weights_NU]
    if "seq2seq" in kind:
        sides += padded([[*row[::-1], eos] for row in rows])
    return model, Batch(*sides)


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in rows], batch_first=True
    ), torch.tensor([len(row) for row in rows])


def objective_of(name, folder, model):
    """An objective by its name in the registry; a new one needs a line here only if it has no defaults."""
    settings = {
        "dependency_heads": {"treebank": str(folder / "bank.conllu"), "rows": 5},
        "distillation": {"teacher": str(folder / "teacher"), "prompt": 2},
        "minimum_risk": {"samples": 4, "alpha": 1.0, "prompt": 2},
        "reinforce": {"samples": 2, "prompt": 2},
        "scheduled_sampling": {"decay": {"kind": "linear", "begin": 0.5}},
        "sequence_unlikelihood": {"n": 1, "prompt": 2},
    }
    (folder / "bank.conllu").write_text(BANK)
    if name == "distillation":
        us.save(model, folder / "teacher")
    return OBJECTIVES[name](**settings.get(name, {}))


def split(kind, objective, cuts, text=TEXT):
    """What one update says and its gradient, where the rows are split into batches at these cuts."""
    model, whole = model_and_rows(kind, text)
    settings = TrainSettings(updates=3, clip=0.0, accumulate=len(cuts) + 1)
    done, found = gradients(Run(model, objective, Rows(whole, cuts), settings, seed=4))
    return done, torch.cat([it.flatten() for it in found.values()])


def assert_split_exactly(kind, objective, text=TEXT):
    whole, expected = split(kind, objective, [], text)
    assert expected.norm() > 1e-4
    for cuts in ([4], [1, 2, 7]):
        done, found = split(kind, objective, cuts, text)
        assert (found - expected).norm() < 1e-5 * expected.norm(), (kind, objective, cuts)
        assert done.loss == pytest.approx(whole.loss, rel=1e-5, abs=1e-6)
        assert done.weight == pytest.approx(whole.weight)
        assert done.parts == pytest.approx(whole.parts, rel=1e-4)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_has_the_gradient_of_one_big_batch_however_it_is_split(name, tmp_path):
    text = TEXT_OF_BANK if name == "dependency_heads" else TEXT
    tried = []
    for kind in MODELS:
        model, _ = model_and_rows(kind, text)
        try:
            objective = objective_of(name, tmp_path, model)
            objective.check(model)
        except ValueError:
            continue
        tried.append(kind)
        if not kind.startswith("masked") or objective.masks_tokens:
            assert_split_exactly(kind, objective, text)
        main = Masked() if kind.startswith("masked") else CrossEntropy()
        assert_split_exactly(kind, WeightedSum(main, ((objective, AuxiliarySettings(0.7)),)), text)
    assert tried


def test_objectives_together_have_the_gradient_of_one_big_batch(tmp_path):
    model, _ = model_and_rows("transformer_seq2seq")
    others = [
        (objective_of(name, tmp_path, model), AuxiliarySettings(weight))
        for name, weight in (
            ("reinforce", 0.3),
            ("minimum_risk", 2.0),
            ("sequence_unlikelihood", 0.5),
            ("attention_focus", 0.1),
            ("distillation", 0.2),
            ("unlikelihood", 1.5),
        )
    ]
    assert_split_exactly(
        "transformer_seq2seq",
        WeightedSum(objective_of("scheduled_sampling", tmp_path, model), tuple(others)),
    )


def test_a_loss_with_another_weight_than_it_prepared_is_refused(tiny):
    class Odd(Objective):
        def __call__(self, model, batch, clock):
            return Loss(model.head.weight.sum(), 1.0)

    run = tiny(objective=WeightedSum(CrossEntropy(), ((Odd(), AuxiliarySettings()),)), accumulate=2)
    with pytest.raises(ValueError, match=r"Odd\.prepare returned the weight .*: override prepare"):
        apply_update(run)


def test_the_gradient_is_that_of_the_mean_loss(tiny):
    run = tiny(dropout=0.0, clip=0.0)
    batch = run.feed.batch(0)
    model = run.model
    total, _ = model.head.loss(
        model.hidden_for(batch).flatten(0, 1), batch.targets_NU.flatten(), batch.weights_NU.flatten(), 0.1
    )
    expected = torch.autograd.grad(total / batch.weight, list(model.parameters()))
    done, found = gradients(run)
    for it, (name, _) in zip(expected, model.named_parameters(), strict=True):
        torch.testing.assert_close(found[name], it)
    assert done.norm == pytest.approx(math.sqrt(sum(it.square().sum().item() for it in expected)), rel=1e-5)


def test_a_long_gradient_is_clipped_and_a_short_one_is_not(tiny):
    free, unclipped = gradients(tiny(clip=0.0))
    limit = free.norm / 2
    done, clipped = gradients(tiny(clip=limit))
    assert done.norm == pytest.approx(free.norm)
    for name, it in unclipped.items():
        torch.testing.assert_close(clipped[name], it / 2)
    _, left = gradients(tiny(clip=2 * free.norm))
    assert all(torch.equal(left[name], it) for name, it in unclipped.items())


class Team:
    rank, size = 1, 2


def test_the_batches_of_a_team_are_one_sequence(tiny):
    run = tiny(accumulate=4)
    run.progress.update = 5
    assert list(micro_batches(run)) == [20, 21, 22, 23]
    run.processes = Team()
    assert list(micro_batches(run)) == [21, 23]


def test_the_learning_rate_follows_the_schedule(tiny):
    run = tiny(lr=0.5)
    run.schedule = lambda t, updates: t / updates
    assert [apply_update(run)[0].lr for _ in range(3)] == [0.5 * t / 12 for t in (1, 2, 3)]


def test_batches_without_a_target_are_refused(tiny):
    class Nothing(Objective):
        def __call__(self, model, batch, clock):
            return Loss(model.head.weight.sum() * 0.0, 0.0)

    run = tiny(objective=Nothing())
    with pytest.raises(ValueError, match=r"update 1: batches \[0\] have no targets"):
        apply_update(run)
