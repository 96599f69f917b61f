import pytest
import torch

from unspool.training.validate import Validation, validate


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
        run.team = Half(rank)
        original, calls = run.forward_pass.forward, []
        run.forward_pass.forward = lambda *args, original=original, calls=calls: (
            calls.append(1) or original(*args)
        )
        validate(run)
        passes.append(len(calls))
        parts.append(run.team.asked)
    assert passes == [2, 2]  # of three batches
    (a, b, _), (c, d, _) = parts
    assert (a + c) / (b + d) == pytest.approx(whole)


def test_nothing_to_validate_on_is_refused(tiny):
    run = tiny()
    for batch in run.valid:
        batch.weights_NU.zero_()
    with pytest.raises(ValueError, match="validation"):
        validate(run)


def test_a_model_that_carries_reads_every_lane_in_one_piece(carrying):
    run = carrying(dropout=0.0)
    lanes = [
        torch.cat([batch.inputs_NT[row, : batch.lengths_N[row]] for batch in run.valid]) for row in (0, 1)
    ]
    nll = weight = 0.0
    for lane, targets in zip(lanes, (torch.cat([b.targets_NU[r, : b.lengths_N[r]] for b in run.valid]) for r in (0, 1)), strict=True):  # fmt: skip
        logp = run.model.eval()(lane[None])[0]
        nll -= logp.gather(1, targets[:, None]).sum().item()
        weight += len(targets)
    assert weight == 49
    assert validate(run).nll == pytest.approx(nll / weight, rel=1e-5)


def test_all_processes_read_what_is_carried_and_each_batch_is_counted_once(carrying):
    whole = validate(carrying(dropout=0.0)).nll
    parts = []
    for rank in (0, 1):
        run = carrying(dropout=0.0)
        run.team = Half(rank)
        validate(run)
        parts.append(run.team.asked)
    (a, b, _), (c, d, _) = parts
    assert (a + c) / (b + d) == pytest.approx(whole)
    assert b + d == 49


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
