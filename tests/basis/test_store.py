import numpy as np
import pytest
import torch

from unspool.basis import BasisTest, store
from unspool.basis.store import fingerprint, whitened


@pytest.mark.parametrize("rank", [None, 2, 0])
def test_what_was_kept_is_what_was_made(tmp_path, rank):
    W = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    made, kept = whitened(W, rank, tmp_path), whitened(W, rank, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    for name in ("X_VK", "basis_MK", "column_M", "norm_V"):
        assert (getattr(made, name) == getattr(kept, name)).all()
    assert made.row_norm == kept.row_norm
    assert (made.weight[np.arange(60)] == kept.weight[np.arange(60)]).all()


def test_the_second_time_nothing_is_made(tmp_path, monkeypatch, model):
    p = model.p(0)
    first = BasisTest(model.W, 5, cache=tmp_path / "deep" / "folder")
    monkeypatch.setattr(store, "whiten", lambda *_: pytest.fail("made again"))
    second = BasisTest(model.W, 5, cache=tmp_path / "deep" / "folder")
    i = int(np.argsort(-p)[7])
    assert first.accepts(p, i, tau=0.05).accepted == second.accepts(p, i, tau=0.05).accepted


def test_another_matrix_or_rank_is_another_file():
    W = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    other = W.copy()
    other[59, 3] = np.nextafter(other[59, 3], np.float32(9))
    names = [
        fingerprint(W, None),
        fingerprint(W, 2),
        fingerprint(W, 3),
        fingerprint(other, None),
        fingerprint(W[:59], None),
    ]
    assert len(set(names)) == len(names)
    assert fingerprint(torch.from_numpy(W), None) == fingerprint(W, None) == fingerprint(W, 4)


def test_a_broken_file_is_made_anew(tmp_path):
    W = np.random.default_rng(0).standard_normal((60, 4))
    whitened(W, None, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert (whitened(W, None, tmp_path).X_VK == whitened(W, None, None).X_VK).all()


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(store, "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        whitened(np.eye(3), None, tmp_path)
    assert list(tmp_path.iterdir()) == []
