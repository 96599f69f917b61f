import json

import pytest

import unspool as us

RECIPE = {
    "data": {"kind": "language", "language": {"kind": "agreement"}, "train": 200, "valid": 5},
    "batches": {"kind": "bucketed", "tokens": 200},
    "model": {"kind": "transformer_lm", "layers": 1, "width": 16, "heads": 2, "inner_width": 16},
    "schedule": {"kind": "constant"},
    "train": {"updates": 20},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "language"
    us.train(RECIPE, folder)
    return folder


def test_samplers_and_beams_beside_the_truth(unspool, run, tmp_path):
    argv = (
        "--sentences",
        5,
        "--texts",
        10,
        "--decoder",
        "Sample()",
        "--decoder",
        "Sample(TopK(5))",
        "--decoder",
        "Beam(2)",
    )
    status, out, err = unspool("evaluate", "truth", run, *argv, "--json")
    assert (status, err) == (0, "")
    plain, narrow, beam = map(json.loads, out.splitlines())
    assert plain["tokens"]["support"]["recall"] == 1
    assert narrow["tokens"]["support"]["size"] == 5
    assert narrow["tokens"]["support"]["recall"] < 1
    assert narrow["tokens"]["kl"] is None  # infinite
    assert beam["tokens"] is None
    assert (plain["texts"]["texts"], beam["texts"]["texts"]) == (10, 2)
    status, out, err = unspool("evaluate", "truth", run, *argv)
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines() if "(" in line] == [
        "Sample()",
        "Sample(TopK(5))",
        "Beam(2)",
    ]


def test_a_decoder_that_does_not_suit_is_named_and_the_others_go_on(unspool, run):
    argv = (
        "--sentences",
        2,
        "--texts",
        2,
        "--decoder",
        "Greedy()",
        "--decoder",
        "Sample(BasisAware(0.1, rank=99))",
    )
    status, out, err = unspool("evaluate", "truth", run, *argv)
    assert status == 2
    assert "Greedy()" in out
    assert err.startswith("unspool: Sample(BasisAware(0.1, rank=99)): BasisAware.rank is 99")


def test_without_a_truth_it_is_refused(unspool, loaded):
    status, _, err = unspool("evaluate", "truth", "tiny")
    assert status == 2
    assert "was not trained on the words of a language" in err
