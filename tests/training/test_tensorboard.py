import sys
from types import SimpleNamespace

import pytest

from unspool.training.curves import TensorBoardEvents


class Writer:
    made = None

    def __init__(self, folder, purge_step):
        self.folder, self.purge_step, self.scalars, self.said = folder, purge_step, [], []
        Writer.made = self

    def add_scalar(self, *args):
        self.scalars.append(args)

    def close(self):
        self.said.append("close")


def test_every_number_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    events = TensorBoardEvents(tmp_path, 10)
    events.add({"update": 12, "loss": 2.0, "lr": 0.1})
    events.close()
    assert Writer.made.purge_step == 11
    assert Writer.made.folder == str(tmp_path / "tensorboard")
    assert Writer.made.scalars == [("loss", 2.0, 12), ("lr", 0.1, 12)]
    assert Writer.made.said == ["close"]


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        TensorBoardEvents(tmp_path, 0)


def test_a_run_writes_them(tiny, write, tmp_path, monkeypatch):
    from unspool.training.loop import training_loop as training
    from unspool.training.run_folder import RunFolder

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    folder, run = RunFolder(tmp_path, write), tiny(tensorboard=True, updates=4)
    folder.resume(run)
    list(training(run, folder))
    folder.close(run)
    assert [at for name, _, at in Writer.made.scalars if name == "loss"] == [1, 2, 3, 4]
    assert [at for name, _, at in Writer.made.scalars if name == "valid"] == [4]
    assert Writer.made.said == ["close"]
