from argparse import ArgumentParser, Namespace

import pytest

from unspool.cli.corpus import add_ray_options, corpus_of, pool_of, without_ray


def parsed(*argv):
    parser = ArgumentParser()
    add_ray_options(parser, "--file")
    return parser.parse_args(argv)


def test_options_of_the_pool_mean_nothing_without_it():
    without_ray(parsed())
    with pytest.raises(ValueError, match="--workers goes with --ray"):
        without_ray(parsed("--workers", "2"))


def test_a_corpus_needs_a_folder_to_go_to(tmp_path):
    path = tmp_path / "a.jsonl"
    path.touch()
    with pytest.raises(ValueError, match="--output FOLDER"):
        corpus_of(Namespace(output=None, block=None), path, ())
    made = corpus_of(Namespace(output=tmp_path / "out", block=None), path, ("prompt",))
    assert (made.files, made.rows, made.columns) == ([path], 256, ("prompt",))
    assert corpus_of(Namespace(output=tmp_path / "out", block=3), path, ()).rows == 3


@pytest.mark.parametrize(("device", "gpus"), [("cpu", 0), ("cuda", 1), ("cuda:1", 1)])
def test_a_worker_on_a_graphics_processor_takes_one(device, gpus):
    assert pool_of(Namespace(workers=4, device=device)) == {"workers": 4, "gpus": gpus}
