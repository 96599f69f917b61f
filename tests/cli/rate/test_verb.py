import pytest

from unspool.cli.rate import STEPS


@pytest.mark.parametrize("step", STEPS)
def test_every_step_has_its_help(unspool, step):
    status, out, _ = unspool("rate", step, "--help")
    assert status == 0
    assert f"unspool rate {step}" in out


def test_nothing_heavy_is_imported_to_rate(ratings):
    import subprocess
    import sys

    code = (
        "import sys\nfrom unspool.cli import main\n"
        f"assert main(['rate', 'answer', {str(ratings)!r}, '--rater', 'anna']) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdin=subprocess.DEVNULL)
