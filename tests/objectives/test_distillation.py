import pytest
import torch

import unspool as us
from unspool.data.batch import Batch
from unspool.interfaces import Clock
from unspool.objectives.cross_entropy import CrossEntropy
from unspool.objectives.distillation import Distillation
from unspool.objectives.rollouts import make_prompts, rollout_batch

CLOCK = Clock(0, 1)


@pytest.fixture
def teacher(spoken, tmp_path):
    model, _ = spoken
    us.save(model, tmp_path / "teacher")
    return str(tmp_path / "teacher")


def test_it_is_cross_entropy_on_what_the_teacher_says(spoken, teacher):
    model, batch = spoken
    asked = make_prompts(model, batch, 8)
    said = [
        us.generate(us.load(teacher), it.prompt, us.Beam(3), max_new_tokens=limit).tokens
        for it, limit in zip(asked, (3, 5), strict=True)  # 1.5 × 2 and 1.5 × 3, rounded up
    ]
    expected = CrossEntropy(0.1)(model, rollout_batch(model, batch, asked, said), CLOCK)
    found = Distillation(teacher=teacher, beam=3, smoothing=0.1)(model, batch, CLOCK)
    assert found.total.item() == pytest.approx(expected.total.item(), rel=1e-6)
    assert found.weight == sum(map(len, said))


def test_the_teacher_is_asked_once_and_throws_no_dice(spoken, teacher, monkeypatch):
    model, batch = spoken
    objective = Distillation(teacher=teacher)
    objective.check(model)
    calls = []
    kept = Distillation.generate
    monkeypatch.setattr(
        Distillation, "generate", lambda self, *args, **named: calls.append(1) or kept(self, *args, **named)
    )
    torch.manual_seed(0)
    first = objective(model, batch, CLOCK).total
    after = torch.rand(1)
    torch.manual_seed(0)
    assert objective(model, batch, CLOCK).total == first
    assert torch.rand(1) == after
    assert len(calls) == 1


def test_earlier_batches_do_not_change_the_loss(transformer, tmp_path):
    """As after a resume, or in a process that has had other batches: the same prompt in rows of other lengths."""
    model = transformer(vocab_size=9, context=64)
    us.save(model, tmp_path / "teacher")

    def row(length):
        tokens = torch.tensor([[1, 3, *[4 + at % 5 for at in range(length)]]])
        weights = torch.ones(1, length + 1)
        return Batch(tokens[:, :-1], torch.tensor([length + 1]), tokens[:, 1:], weights, None, None)

    def losses(lengths):
        objective = Distillation(teacher=str(tmp_path / "teacher"), prompt=2, beam=2)
        return {it: objective(model, row(it), CLOCK).weight for it in lengths}

    assert losses((4, 12)) == losses((12, 4)) == {4: 6.0, 12: 18.0}  # 1.5 times as long: it never ends


def test_a_teacher_that_cannot_teach_is_refused(spoken, teacher, transformer, translator):
    model, _ = spoken
    Distillation(teacher=teacher).check(model)
    with pytest.raises(ValueError, match="differ in kind or vocabulary"):
        Distillation(teacher=teacher).check(translator())
    with pytest.raises(ValueError, match="differ in kind or vocabulary"):
        Distillation(teacher=teacher).check(transformer())
    with pytest.raises(ValueError, match="needs a teacher"):
        Distillation()
    with pytest.raises(ValueError, match="beam is 0"):
        Distillation(teacher="x", beam=0)
