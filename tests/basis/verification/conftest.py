import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def certificates():
    """benchmarks/certificates.py: forgeries, and a judge of them who knows nothing but fractions."""
    path = Path(__file__).resolve().parents[3] / "benchmarks/certificates.py"
    spec = importlib.util.spec_from_file_location("benchmarks_certificates", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
