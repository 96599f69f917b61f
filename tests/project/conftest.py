import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root():
    """The root of the repository."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def script(root):
    """Import a script that belongs to no package: script("docs/generate.py")."""

    def load(name):
        path = root / name
        spec = importlib.util.spec_from_file_location(name.replace("/", "_").removesuffix(".py"), path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # @dataclass looks its module up
        sys.path.insert(0, str(path.parent))  # so that a script can import its siblings
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(path.parent))
        return module

    return load


@pytest.fixture
def tree(tmp_path):
    """Write a small tree of files from a dict."""

    def write(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        return tmp_path

    return write
