import pytest

from unspool.cli.verbs import VERBS

FACES = [["--help"], *([verb, "--help"] for verb in VERBS)]


@pytest.mark.parametrize("argv", FACES, ids=" ".join)
def test_help_shows_an_example(unspool, argv):
    status, out, _ = unspool(*argv)
    assert status == 0
    verb = "" if argv == ["--help"] else argv[0]
    assert f"  unspool {verb}" in out.partition("example")[2]
