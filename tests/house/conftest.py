import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root():
    """The project's folder."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def script(root):
    """A script that belongs to no package, as a module: script("docs/generate.py")."""

    def load(name):
        path = root / name
        spec = importlib.util.spec_from_file_location(name.replace("/", "_").removesuffix(".py"), path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # @dataclass looks its module up
        sys.path.insert(0, str(path.parent))  # where a script finds its neighbours
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(path.parent))
        return module

    return load


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
