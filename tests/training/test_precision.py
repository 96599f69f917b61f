import pytest
import torch

from unspool.training import forward_pass
from unspool.training.forward_pass import autocast, check_device
from unspool.training.settings import TrainSettings


def settings(**options):
    return TrainSettings(updates=1, **options)


def test_float32_is_left_alone():
    with autocast(settings()):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_bfloat16_products():
    with autocast(settings(precision="bfloat16")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


def test_a_run_in_bfloat16_keeps_float32_weights_and_learns(tiny):
    from unspool.training.loop import training_loop as training

    run = tiny(dropout=0.0, updates=60, precision="bfloat16")
    done = list(training(run))
    assert done[-1].valid < 1.2 < done[3].valid
    assert {it.dtype for it in run.weights().values()} == {torch.float32}
    assert {it.dtype for it in run.training_state().values()} == {torch.float32}


def test_bfloat16_is_refused_where_it_would_be_imitated(monkeypatch):
    monkeypatch.setattr(forward_pass, "_has_bfloat16", lambda device: False)
    with pytest.raises(ValueError, match="use precision = 'float32'"):
        check_device(settings(precision="bfloat16"))
    check_device(settings())


def test_bfloat16_is_taken_where_the_processor_has_it(monkeypatch):
    for name in forward_pass.BFLOAT16_CPU_FLAGS:
        monkeypatch.setattr(torch.cpu, name, lambda: True, raising=False)
    check_device(settings(precision="bfloat16"))


@pytest.mark.parametrize("device", ["cuda:77", "nonsense"])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(ValueError, match=f"device '{device}' (is unknown|cannot be used here)"):
        check_device(settings(device=device))
