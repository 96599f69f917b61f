import pytest

from unspool.cli.evaluate import SUBJECTS


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_subject_has_its_help(unspool, subject):
    status, out, _ = unspool("evaluate", subject, "--help")
    assert status == 0
    assert f"unspool evaluate {subject}" in out


def test_an_unknown_subject_is_told(unspool):
    status, _, err = unspool("evaluate", "everything")
    assert status == 2
    assert "everything" in err
