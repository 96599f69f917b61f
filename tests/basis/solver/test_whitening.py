import os
import tracemalloc

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from unspool import io
from unspool.basis import BasisTest
from unspool.basis.solver import whitening
from unspool.basis.solver.whitening import (
    Float64Rows,
    dependent_columns,
    fingerprint,
    load_or_whiten,
    scale_columns,
    scale_uniformly,
    whiten,
)


def test_whitened_rows_are_round_and_keep_every_s(model, white):
    X = white.X_VK.astype(np.float64)
    assert np.abs(X.T @ X / len(X) - np.eye(X.shape[1])).max() < 1e-5
    lam = np.random.default_rng(0).standard_normal(X.shape[1])
    assert white.project((white.basis_MK @ lam)[:, None])[:, 0] == pytest.approx(X @ lam, abs=1e-4)
    assert white.norm_V == pytest.approx(np.linalg.norm(X, axis=1))


def test_blocks_give_what_the_whole_matrix_gives(model, white):
    wide = np.column_stack([model.W.astype(np.float64), np.ones(len(model.W))])
    tokens = np.array([5, 0, 5999])
    assert (white.rows(tokens) == wide[tokens]).all()
    y = np.random.default_rng(0).standard_normal((len(wide), 2))
    assert white.combine(y) == pytest.approx(wide.T @ y)
    assert white.combine(y[:3], tokens) == pytest.approx(wide[tokens].T @ y[:3])
    assert white.max_row_norm == pytest.approx(np.linalg.norm(wide, axis=1).max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_torch_matrices_of_every_type_are_read_exactly(dtype):
    W = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    white = whiten(W)
    assert white.weight.W is not None
    assert (white.weight[np.arange(50)] == W.double().numpy()).all()
    assert np.abs(white.X_VK - whiten(W.double().numpy()).X_VK).max() < 1e-5


def test_a_memory_map_is_not_loaded_whole(tmp_path):
    np.save(tmp_path / "W.npy", np.random.default_rng(0).standard_normal((3000, 3)).astype(np.float16))
    W = np.load(tmp_path / "W.npy", mmap_mode="r")
    white = whiten(W)
    assert np.shares_memory(white.weight.W, W)


@pytest.mark.parametrize("kind", ["memory map", "bfloat16"])
@pytest.mark.parametrize("rank", [None, 8])
def test_w_is_never_converted_whole(tmp_path, kind, rank):
    """numpy tells tracemalloc what it allocates; pages of the map and torch's tensors are not among it."""
    if kind == "memory map":
        W = np.lib.format.open_memmap(tmp_path / "W.npy", mode="w+", dtype=np.float32, shape=(30000, 64))
        W[:] = np.random.default_rng(0).standard_normal((30000, 64))
    else:
        W = torch.randn(30000, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    tracemalloc.start()
    white = whiten(W, rank)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    kept = white.X_VK.nbytes + white.norm_V.nbytes + (0 if rank is None else white.weight.W.nbytes)
    # beside what is kept: a few blocks of 1,024 rows in float64, and squares of the width
    assert peak < kept + 6 * 8 * (1024 * 65 + 65 * 65)
    assert peak < kept + 8 * 30000 * 64 / 2


class OnAnotherDevice:
    """What a tensor on a GPU looks like from here: it has to be copied to the host."""

    def __init__(self, W):
        self.W, self.copies = W, 0

    def detach(self):
        return self

    def cpu(self):
        self.copies += 1
        return self.W


def test_a_matrix_on_another_device_is_copied_once():
    W = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    far = OnAnotherDevice(W)
    assert (whiten(far).X_VK == whiten(W).X_VK).all()
    assert far.copies == 1


def test_the_rank_takes_the_leading_singular_directions():
    W = np.random.default_rng(0).standard_normal((200, 6)) * [9, 5, 3, 1, 0.5, 0.1] + 2
    _, _, directions = np.linalg.svd(W, full_matrices=False)
    kept = whiten(W, 2).weight.W
    expected = W @ directions[:2].T
    assert np.abs(np.abs(kept) - np.abs(expected)).max() < 1e-9
    assert whiten(W, 0).X_VK.shape == (200, 1)
    assert whiten(W, 6).weight.W is W


@pytest.mark.parametrize(
    ("W", "columns"),
    [
        (np.zeros((9, 2)), 1),  # nothing but the ones
        (np.ones((9, 3)), 1),  # constant columns say what the ones say
        (np.arange(9.0)[:, None] @ [[1, 2, -1]], 2),  # one direction and the ones
        (np.eye(3), 3),  # three rows: no more than three directions
        (1e-9 * np.random.default_rng(0).standard_normal((40, 2)), 3),  # units do not matter
        (np.random.default_rng(0).standard_normal((40, 2)) * [1e-6, 1e6], 3),
        (np.random.default_rng(0).standard_normal((40, 2)) * [1, 1e-7] + [0, 3], 3),  # an almost constant one
        (
            np.random.default_rng(0).standard_normal((40, 2)) * [1, 1e-12] + [0, 3],
            3,
        ),  # and one that is more so
        (
            np.random.default_rng(0).standard_normal((40, 1)) * [1, 1, 0] + 1e-12 * np.eye(40, 3, -2),
            3,
        ),  # rounding
        (np.random.default_rng(0).standard_normal((40, 2)) * [1e-165, 1e180], 3),
    ],
)
def test_dependent_directions_are_dropped_and_units_do_not_matter(W, columns):
    white = whiten(W)
    assert white.X_VK.shape[1] == columns
    X = white.X_VK.astype(np.float64)
    assert np.abs(X.T @ X / len(X) - np.eye(columns)).max() < 1e-5


def test_directions_of_mere_rounding_are_no_directions():
    W = np.random.default_rng(0).standard_normal((6, 20))
    assert whiten(W, 18).X_VK.shape[1] == whiten(W).X_VK.shape[1] == 6


@pytest.mark.parametrize("rank", [-1, 3])
def test_a_rank_that_is_none_is_refused(rank):
    with pytest.raises(ValueError, match=r"rank is .*None is 2, the width of W"):
        whiten(np.ones((5, 2)), rank)


@pytest.mark.parametrize("W", [np.ones(3), np.ones((0, 2)), np.ones((2, 3, 4))])
def test_a_value_that_is_not_a_matrix_is_refused(W):
    with pytest.raises(ValueError, match="one row per token"):
        whiten(W)


@pytest.mark.parametrize("rank", [None, 1])
def test_a_matrix_with_nan_is_refused(rank):
    with pytest.raises(ValueError, match="NaN or infinite"):
        whiten(np.array([[1.0, 2.0], [np.nan, 3.0]]), rank)


def fair(W):
    with np.errstate(over="ignore"):
        return scale_columns(Float64Rows(W), (W * W).mean(axis=0), W.mean(axis=0))


def test_columns_of_the_usual_size_stay_as_they_are():
    W = np.random.default_rng(0).standard_normal((50, 3)) * [1e-30, 1.0, 1e30]
    assert fair(W) is None
    assert BasisTest(W).weight is W


def test_columns_beyond_the_squares_of_float64_are_scaled_by_powers_of_two():
    W = np.random.default_rng(0).standard_normal((50, 3)) * [1e-165, 1.0, 1e250]
    scaled = fair(W).W
    assert np.abs(scaled).max(axis=0) == pytest.approx([0.75, np.abs(W[:, 1]).max(), 0.75], rel=0.34)
    ratio = scaled[0] / W[0]
    assert (W * ratio == scaled).all()
    assert (np.frexp(ratio)[0] == 0.5).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_from_a_steady_column_one_of_its_entries_is_taken_off(sign):
    W = sign * (1e9 + np.array([[3.0], [0.0], [1.0], [0.5]]))
    shifted = fair(W).W
    assert (shifted - shifted.min() == W - W.min()).all()
    assert np.abs(shifted).max() == 3


def test_a_column_that_is_steady_but_for_one_entry_is_not_shifted():
    W = np.full((5000, 1), 1.0) + 1e-9 * np.arange(5000.0)[:, None]
    W[7] = 0.25  # 1 − 0.25 would be exact, but 1.0000000001 − 0.25 need not be
    assert fair(W) is None


def test_a_constant_has_nothing_to_be_shifted():
    assert fair(np.full((6, 1), 3.0)) is None


@pytest.mark.parametrize("a", [1e5, 1e6, 1e8, 1e11, -1e13])
def test_verdicts_do_not_depend_on_where_zero_is(a):
    """W = [[a], [a+1], [a+3]]: the test itself does not know a."""
    p, W = [0.3, 0.5, 0.2], np.array([[0.0], [1.0], [3.0]])
    for i in range(3):
        for tau in (0.1, 0.4, 0.6, 0.9):
            here, there = (BasisTest(W + b).accepts(p, i, tau=tau) for b in (0.0, a))
            assert here.decided
            assert there.decided
            assert here.accepted == there.accepted
            test = BasisTest(W + a)
            assert test.verify(there.certificate, p, tau)


@pytest.mark.parametrize("scale", [1e-300, 1e-165, 1e-100, 1e100, 1e165, 1e300])
@pytest.mark.parametrize("rank", [None, 2])
def test_verdicts_do_not_depend_on_units(scale, rank):
    rng = np.random.default_rng(0)
    W, p = rng.standard_normal((30, 4)), rng.dirichlet(np.ones(30))
    plain, scaled = BasisTest(W, rank), BasisTest(scale * W, rank)
    for i in range(8):
        here, there = plain.accepts(p, i, tau=0.2), scaled.accepts(p, i, tau=0.2)
        assert here.decided
        assert there.decided
        assert here.accepted == there.accepted
        assert scaled.verify(there.certificate, p, 0.2)


def test_one_power_of_two_for_all_keeps_the_singular_directions():
    W = np.random.default_rng(0).standard_normal((9, 2)) * [1e-170, 1e-172]
    scaled = scale_uniformly(Float64Rows(W), 0.0).W
    assert (scaled / W == (scaled / W)[0, 0]).all()
    assert scale_uniformly(Float64Rows(np.eye(3)), 1.0) is None
    assert scale_uniformly(Float64Rows(np.zeros((3, 2))), 0.0) is None


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(broken):
    W = np.array([[1.0, 2.0], [broken, 3.0]])
    with pytest.raises(ValueError, match="NaN or infinite"):
        fair(W)
    with pytest.raises(ValueError, match="NaN or infinite"):
        scale_uniformly(Float64Rows(W), broken)


def test_as_many_columns_are_left_out_as_there_are_dependences():
    # columns 0 and 2 are alike, column 1 is three times the ones
    null = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -3.0]])
    left_out = dependent_columns(null)
    assert left_out.tolist() in ([0, 1], [1, 2])


def test_dependent_columns_do_not_change_verdicts():
    W = np.random.default_rng(0).standard_normal((40, 3))
    wide = np.column_stack([W, W[:, 0], np.zeros(40), np.full(40, 7.0), W[:, 1] - W[:, 2]])
    test, few = BasisTest(wide), BasisTest(W)
    assert (test.rank, test.m, test.weight.shape) == (7, 4, (40, 3))
    p = np.random.default_rng(1).dirichlet(np.ones(40))
    assert test.mask(p, 0.2).tolist() == few.mask(p, 0.2).tolist()


def test_rows_come_in_blocks():
    rows = Float64Rows(np.arange(5000.0)[:, None])
    assert np.concatenate([block for _, block in rows.blocks()])[:, 0].tolist() == list(range(5000))
    assert max(len(block) for _, block in rows.blocks()) <= 1024


def test_columns_can_be_left_out_whatever_w_is():
    W = np.arange(12.0).reshape(3, 4)
    for kind in (W, W.astype(np.float16), torch.tensor(W).bfloat16()):
        few = Float64Rows(kind).without_columns(np.array([1, 2]))
        assert few.shape == (3, 2)
        assert few[np.arange(3)].tolist() == W[:, [0, 3]].tolist()


@pytest.mark.parametrize("rank", [None, 2, 0])
def test_a_cached_matrix_equals_the_computed_one(tmp_path, rank):
    W = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    made, kept = load_or_whiten(W, rank, tmp_path), load_or_whiten(W, rank, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    for name in ("X_VK", "basis_MK", "mean_square_M", "max_abs_M", "norm_V"):
        assert (getattr(made, name) == getattr(kept, name)).all()
    assert made.max_row_norm == kept.max_row_norm
    assert (made.weight[np.arange(60)] == kept.weight[np.arange(60)]).all()


def test_rows_in_other_units_are_kept_with_it(tmp_path):
    rng = np.random.default_rng(0)
    W = np.column_stack([rng.standard_normal(30), 1e9 + rng.integers(9, size=30), 1e-170 * rng.random(30)])
    made, kept = load_or_whiten(W, None, tmp_path), load_or_whiten(W, None, tmp_path)
    assert made.is_derived
    assert kept.is_derived
    assert not (made.weight.W == W).all()
    assert (made.weight.W == kept.weight.W).all()
    p = rng.dirichlet(np.ones(30))
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
    load_or_whiten(W, None, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert (load_or_whiten(W, None, tmp_path).X_VK == load_or_whiten(W, None, None).X_VK).all()


def test_a_file_with_other_numbers_under_the_same_name_is_made_anew(tmp_path):
    W = np.random.default_rng(0).standard_normal((60, 4))
    right = load_or_whiten(W, None, tmp_path)
    (path,) = tmp_path.iterdir()
    with safe_open(path, "np") as file:
        kept, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    save_file({**kept, "max_row_norm": kept["max_row_norm"] / 1e6}, path, about)
    assert load_or_whiten(W, None, tmp_path).max_row_norm == right.max_row_norm
    other = np.random.default_rng(1).standard_normal((60, 4))
    path.rename(path.with_name(f"basis-{fingerprint(other, None)}.safetensors"))
    assert (load_or_whiten(other, None, tmp_path).X_VK == load_or_whiten(other, None, None).X_VK).all()


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="unspool.basis.solver.whitening")
    W = np.random.default_rng(0).standard_normal((60, 4))
    load_or_whiten(W, None, tmp_path / "cache")
    (tmp_path / "cache").chmod(0o777)
    monkeypatch.setattr(whitening, "_checksum", lambda *_: pytest.fail("the file was read"))
    load_or_whiten(W, None, tmp_path / "cache")
    assert "other users may write into the folder" in caplog.text


def test_a_write_that_fails_leaves_nothing_behind_and_disturbs_nobody(tmp_path, monkeypatch, caplog):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(whitening, "save_file", fail)
    caplog.set_level("INFO", logger="unspool.basis.solver.whitening")
    assert (
        load_or_whiten(np.eye(3), None, tmp_path).X_VK == load_or_whiten(np.eye(3), None, None).X_VK
    ).all()
    assert list(tmp_path.iterdir()) == []
    assert "disk full" in caplog.text
    monkeypatch.setattr(io, "MIN_FREE_BYTES", 1 << 60)
    load_or_whiten(np.eye(3), None, tmp_path)
    assert "MiB are needed" in caplog.text
    monkeypatch.setattr(whitening, "MAX_CACHE_BYTES", 10)
    load_or_whiten(np.eye(3), None, tmp_path)
    assert "exceed the limit" in caplog.text


def test_the_least_recently_used_file_is_removed_first(tmp_path, monkeypatch):
    matrices = [np.random.default_rng(seed).standard_normal((50, 3)) for seed in range(4)]
    for age, W in enumerate(matrices[:3]):
        load_or_whiten(W, None, tmp_path)
        path = tmp_path / f"basis-{fingerprint(W, None)}.safetensors"
        os.utime(path, (1e9 + age, 1e9 + age))
    size = path.stat().st_size
    load_or_whiten(matrices[0], None, tmp_path)  # used: it is the newest now
    monkeypatch.setattr(whitening, "MAX_CACHE_BYTES", 3 * size)
    load_or_whiten(matrices[3], None, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"basis-{fingerprint(matrices[k], None)}.safetensors" for k in (0, 2, 3)}


def test_the_users_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path))
    assert whitening.default_cache_folder() == tmp_path / "basis"
    monkeypatch.delenv("UNSPOOL_CACHE")
    assert whitening.default_cache_folder().parts[-2:] == ("unspool", "basis")
