from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root():
    """The project's folder."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path):
    """A small tree of files, written from a dict: for breaking the rules on purpose."""

    def write(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        return tmp_path

    return write
