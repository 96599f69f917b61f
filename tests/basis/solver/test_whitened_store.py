import os

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from unspool import io
from unspool.basis import BasisTest
from unspool.basis.solver import whitening
from unspool.basis.solver.whitening import fingerprint, whitened


@pytest.mark.parametrize("rank", [None, 2, 0])
def test_what_was_kept_is_what_was_made(tmp_path, rank):
    W = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    made, kept = whitened(W, rank, tmp_path), whitened(W, rank, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    for name in ("X_VK", "basis_MK", "column_M", "largest_M", "norm_V"):
        assert (getattr(made, name) == getattr(kept, name)).all()
    assert made.row_norm == kept.row_norm
    assert (made.weight[np.arange(60)] == kept.weight[np.arange(60)]).all()


def test_rows_in_other_units_are_kept_with_it(tmp_path):
    dice = np.random.default_rng(0)
    W = np.column_stack([dice.standard_normal(30), 1e9 + dice.integers(9, size=30), 1e-170 * dice.random(30)])
    made, kept = whitened(W, None, tmp_path), whitened(W, None, tmp_path)
    assert made.made
    assert kept.made
    assert not (made.weight.W == W).all()
    assert (made.weight.W == kept.weight.W).all()
    p = dice.dirichlet(np.ones(30))
    tests = [BasisTest(W, cache=tmp_path), BasisTest(W)]
    assert tests[0].mask(p, 0.1).tolist() == tests[1].mask(p, 0.1).tolist()


def test_the_second_time_nothing_is_made(tmp_path, monkeypatch, model):
    p = model.p(0)
    first = BasisTest(model.W, 5, cache=tmp_path / "deep" / "folder")
    monkeypatch.setattr(whitening, "whiten", lambda *_: pytest.fail("made again"))
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


def test_a_file_with_other_numbers_under_the_same_name_is_made_anew(tmp_path):
    W = np.random.default_rng(0).standard_normal((60, 4))
    right = whitened(W, None, tmp_path)
    (path,) = tmp_path.iterdir()
    with safe_open(path, "np") as file:
        kept, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    save_file({**kept, "row_norm": kept["row_norm"] / 1e6}, path, about)
    assert whitened(W, None, tmp_path).row_norm == right.row_norm
    other = np.random.default_rng(1).standard_normal((60, 4))
    path.rename(path.with_name(f"basis-{fingerprint(other, None)}.safetensors"))
    assert (whitened(other, None, tmp_path).X_VK == whitened(other, None, None).X_VK).all()


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="unspool.basis.solver.whitening")
    W = np.random.default_rng(0).standard_normal((60, 4))
    whitened(W, None, tmp_path / "cache")
    (tmp_path / "cache").chmod(0o777)
    monkeypatch.setattr(whitening, "_checksum", lambda *_: pytest.fail("the file was read"))
    whitened(W, None, tmp_path / "cache")
    assert "other users may write into the folder" in caplog.text


def test_a_write_that_fails_leaves_nothing_behind_and_disturbs_nobody(tmp_path, monkeypatch, caplog):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(whitening, "save_file", fail)
    caplog.set_level("INFO", logger="unspool.basis.solver.whitening")
    assert (whitened(np.eye(3), None, tmp_path).X_VK == whitened(np.eye(3), None, None).X_VK).all()
    assert list(tmp_path.iterdir()) == []
    assert "disk full" in caplog.text
    monkeypatch.setattr(io, "SPARE_BYTES", 1 << 60)
    whitened(np.eye(3), None, tmp_path)
    assert "MiB are needed" in caplog.text
    monkeypatch.setattr(whitening, "MOST_BYTES", 10)
    whitened(np.eye(3), None, tmp_path)
    assert "more than is ever kept" in caplog.text


def test_what_was_not_used_for_longest_goes_first(tmp_path, monkeypatch):
    matrices = [np.random.default_rng(seed).standard_normal((50, 3)) for seed in range(4)]
    for age, W in enumerate(matrices[:3]):
        whitened(W, None, tmp_path)
        path = tmp_path / f"basis-{fingerprint(W, None)}.safetensors"
        os.utime(path, (1e9 + age, 1e9 + age))
    size = path.stat().st_size
    whitened(matrices[0], None, tmp_path)  # used: it is the newest now
    monkeypatch.setattr(whitening, "MOST_BYTES", 3 * size)
    whitened(matrices[3], None, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"basis-{fingerprint(matrices[k], None)}.safetensors" for k in (0, 2, 3)}


def test_the_users_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path))
    assert whitening.users_folder() == tmp_path / "basis"
    monkeypatch.delenv("UNSPOOL_CACHE")
    assert whitening.users_folder().parts[-2:] == ("unspool", "basis")
