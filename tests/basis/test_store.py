import numpy as np
import pytest
import torch

from unspool.basis import BasisTest
from unspool.basis.store import fingerprint, whitened

W = np.random.default_rng(0).normal(size=(40, 4))


@pytest.mark.parametrize("rank", [None, 2, 0])
def test_what_is_kept_is_what_was_made(tmp_path, rank):
    made, kept = whitened(W, rank, tmp_path / "new"), whitened(W, rank, tmp_path / "new")
    for name in ("X_VK", "basis_MK", "column_M", "norm_V", "row_norm"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(made, name))
    np.testing.assert_array_equal(kept.weight[:], made.weight[:])
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_the_file_is_read_and_not_made_anew(tmp_path, monkeypatch):
    whitened(W, 2, tmp_path)
    monkeypatch.setattr("unspool.basis.store.whiten", None)
    assert whitened(W, 2, tmp_path).X_VK.shape == (40, 3)
    with pytest.raises(TypeError):
        whitened(W, 3, tmp_path)


def test_a_broken_file_is_made_anew(tmp_path):
    whitened(W, 2, tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    p = np.full(40, 1 / 40)
    assert BasisTest(W, 2, cache=tmp_path).mask(p, 0.1).tolist() == BasisTest(W, 2).mask(p, 0.1).tolist()
    assert path.read_bytes() == whole


def test_the_name_is_of_the_numbers_and_the_rank():
    assert fingerprint(W, None) == fingerprint(torch.tensor(W), None) == fingerprint(W.copy(), None)
    other = W.copy()
    other[3, 1] += 1e-12
    assert len({fingerprint(W, None), fingerprint(W, 2), fingerprint(other, None)}) == 3


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whitened(W, None, None)
    assert not list(tmp_path.iterdir())
