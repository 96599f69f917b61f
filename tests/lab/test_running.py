from dataclasses import replace

import pytest
import torch

from unspool.lab.running import measure_once, run


def test_every_seed_is_measured_once(coin, tmp_path):
    steps = []
    first = list(run([coin], [1, 2], folder=tmp_path, progress=lambda *said: steps.append(said)))
    assert [(it.seed, it.known, it.result.numbers["by toss"][1]) for it in first] == [
        (1, False, 1.0),
        (2, False, 2.0),
    ]
    assert steps == [(coin, 1, 0.5), (coin, 1, 1.0), (coin, 2, 0.5), (coin, 2, 1.0)]
    second = list(run([coin], [1, 2, 3], folder=tmp_path))
    assert [it.known for it in second] == [True, True, False]
    assert not any(it.known for it in run([coin], [1], folder=tmp_path, again=True))


def test_results_before_a_kill_are_kept(coin, tmp_path):
    def killed(seed, quick, progress):
        if seed == 2:
            raise KeyboardInterrupt
        return coin.measure(seed, quick, progress)

    with pytest.raises(KeyboardInterrupt):
        list(run([replace(coin, measure=killed)], [1, 2], folder=tmp_path))
    assert [it.known for it in run([coin], [1, 2], folder=tmp_path)] == [True, False]


def test_a_failed_experiment_yields_its_error_and_others_continue(coin, tmp_path):
    def failing(seed, quick, progress):
        raise RuntimeError("no coin")

    broken = replace(coin, name="broken", measure=failing)
    found = list(run([broken, coin], [1], folder=tmp_path))
    assert [(it.result is None, str(it.error)) for it in found] == [(True, "no coin"), (False, "None")]


def test_a_folder_that_cannot_be_written_to_fails_before_the_work(coin, tmp_path):
    (tmp_path / "file").write_text("")
    broken = replace(coin, measure=lambda *said: pytest.fail("it was measured"))
    with pytest.raises(OSError, match="file"):
        list(run([broken], [1], folder=tmp_path / "file"))


def test_the_seed_is_all_that_is_random_and_the_callers_dice_are_untouched(coin):
    def random(seed, quick, progress):
        return {"drawn": float(torch.rand(())), "threads": float(torch.get_num_threads())}

    claim, threads = replace(coin, measure=random), torch.get_num_threads()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, again = (measure_once(claim, seed, False).numbers for seed in (1, 2, 1))
    assert one == again != two
    assert one["threads"] == 1
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
