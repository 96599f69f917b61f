from dataclasses import replace

import pytest
import torch

from unspool.lab.claims import CLAIMS
from unspool.lab.results import findings, write
from unspool.lab.running import SECONDS, estimated_seconds, measure_once, run


def measured_seeds(claim, seeds, folder, **options):
    """The seeds that `run` measures, because their results are not in the folder."""
    seen = []

    def measure(seed, quick, progress):
        seen.append(seed)
        return claim.measure(seed, quick, progress)

    measure.__module__, measure.__name__ = claim.measure.__module__, claim.measure.__name__
    list(run([replace(claim, measure=measure)], seeds, folder=folder, **options))
    return seen


def test_every_seed_is_measured_once(coin, tmp_path):
    steps = []
    done = list(run([coin], [1, 2], folder=tmp_path, progress=lambda *step: steps.append(step)))
    assert done == [(coin, 1, None), (coin, 2, None)]
    assert steps == [(coin, 1, 0.5), (coin, 1, 1.0), (coin, 2, 0.5), (coin, 2, 1.0)]
    (finding,) = findings([coin], [1, 2], folder=tmp_path)
    assert [run["by toss"][1] for run in finding.runs] == [1.0, 2.0]
    assert measured_seeds(coin, [1, 2, 3], tmp_path) == [3]


def test_the_default_is_the_number_of_seeds_that_the_claim_registered(coin, edge, tmp_path):
    done = list(run([coin, edge], folder=tmp_path))
    assert [seed for claim, seed, _ in done if claim is coin] == list(range(101, 111))
    assert [seed for claim, seed, _ in done if claim is edge] == [101, 102, 103]
    assert len(list(run([coin], folder=tmp_path, quick=True))) == 1


def test_processes_give_the_same_numbers(tmp_path):
    chosen = [it for it in CLAIMS if it.name in ("attention_loss_bounds", "likelihood_trap")]
    for jobs in (1, 2):
        done = list(run(chosen, [101], folder=tmp_path / str(jobs), quick=True, jobs=jobs))
        assert [error for _, _, error in done] == [None, None]
    one, two = (findings(chosen, [101], folder=tmp_path / name, quick=True) for name in "12")
    assert [it.runs for it in one] == [it.runs for it in two]


def test_the_estimate_is_the_time_of_the_last_measurement(coin, tmp_path):
    assert estimated_seconds(tmp_path, coin, 101, False) == SECONDS
    write(tmp_path, replace(measure_once(coin, 101, False), seconds=7.5))
    assert estimated_seconds(tmp_path, coin, 101, False) == 7.5


def test_results_before_a_kill_are_kept(coin, tmp_path):
    def killed(seed, quick, progress):
        if seed == 2:
            raise KeyboardInterrupt
        return coin.measure(seed, quick, progress)

    killed.__module__, killed.__name__ = coin.measure.__module__, coin.measure.__name__
    with pytest.raises(KeyboardInterrupt):
        list(run([replace(coin, measure=killed)], [1, 2], folder=tmp_path))
    assert measured_seeds(coin, [1, 2], tmp_path) == [2]


def test_a_failed_experiment_yields_its_error_and_others_continue(coin, tmp_path):
    def failing(seed, quick, progress):
        raise RuntimeError("no coin")

    broken = replace(coin, name="broken", measure=failing)
    done = list(run([broken, coin], [1], folder=tmp_path))
    assert [(claim.name, str(error)) for claim, _, error in done] == [("broken", "no coin"), ("coin", "None")]


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
