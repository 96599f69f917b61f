"""The entry point between fake base classes with the interface of vLLM 0.32."""

import importlib
import sys
import tomllib
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from unspool.integrations.vllm.model_runners import V1BatchRows, V2RequestSlots

V1, V2 = "vllm.v1.sample.logits_processor", "vllm.v1.worker.gpu.sample.logits_processor"
ENTRY = "unspool.integrations.vllm.entry_point"


class ForV1(ABC):
    """vLLM's base class."""

    @classmethod
    def validate_params(cls, sampling_params):
        return None

    @abstractmethod
    def __init__(self, vllm_config, device, is_pin_memory): ...

    @abstractmethod
    def apply(self, logits): ...

    @abstractmethod
    def is_argmax_invariant(self): ...

    @abstractmethod
    def update_state(self, batch_update): ...


class ForV2(ABC):
    """vLLM's base class."""

    def __init__(self, vllm_config, req_states):
        return None

    @classmethod
    def validate_params(cls, sampling_params):
        return None

    def add_request(self, req_idx, sampling_params):
        return True

    def apply_staged_writes(self):
        return None

    @abstractmethod
    def apply(self, logits, ctx): ...


@pytest.fixture
def installed(monkeypatch):
    """Import the entry point with a fake vLLM."""

    def install(version="0.32.0", *, v2=True):
        modules = {
            V1: {"LogitsProcessor": ForV1},
            "vllm.logger": {"init_logger": lambda name: SimpleNamespace(error=print)},
        }
        modules |= {V2: {"LogitsProcessor": ForV2}} if v2 else {}
        parents = {name.rsplit(".", depth)[0] for name in modules for depth in range(1, name.count(".") + 1)}
        for name in sorted({*parents, *modules}):
            module = ModuleType(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=name in parents)
            module.__path__ = []
            vars(module).update(modules.get(name, {}))
            monkeypatch.setitem(sys.modules, name, module)
        sys.modules["vllm"].__version__ = version
        monkeypatch.delitem(sys.modules, ENTRY, raising=False)
        return importlib.import_module(ENTRY).UnspoolLogitsProcessor

    return install


def test_one_class_serves_both_runners(installed, config):
    decoders = installed()
    assert issubclass(decoders, ForV1)
    assert issubclass(decoders, ForV2)
    assert isinstance(decoders(config, "cpu", False)._rows, V1BatchRows)
    assert isinstance(decoders(config, SimpleNamespace())._rows, V2RequestSlots)
    assert not decoders(config, "cpu", False).is_argmax_invariant()


def test_versions_without_the_v2_runner(installed, config):
    decoders = installed("0.12.0", v2=False)
    assert issubclass(decoders, ForV1)
    assert not issubclass(decoders, ForV2)
    assert isinstance(decoders(config, "cpu", False)._rows, V1BatchRows)


def test_entry_point_delegates_to_the_runner(installed, config, engine):
    first, tokens = installed()(config, "cpu", False), []
    first.update_state(
        SimpleNamespace(removed=[], added=[(0, engine.params("Greedy()"), [1, 5], tokens)], moved=[])
    )
    logits = engine.logits([0])
    assert (first.apply(logits) > -float("inf")).sum() == 1
    assert installed()(config, SimpleNamespace()).add_request(0, engine.params("Greedy()"))


def test_requests_are_validated_on_arrival(installed, engine):
    with pytest.raises(ValueError, match="one token at a time"):
        installed().validate_params(engine.params("Beam(4)"))
    installed().validate_params(engine.params())


def test_old_vllm_is_rejected(installed):
    with pytest.raises(ImportError, match=r"needs vllm 0\.12 or later, but 0\.11\.2 is installed"):
        installed("0.11.2")


def test_missing_vllm_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, ENTRY, raising=False)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs vllm: pip install 'unspool\[vllm\]'"):
        importlib.import_module(ENTRY)


def test_entry_point_is_declared():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    assert project["entry-points"]["vllm.logits_processors"] == {"unspool": f"{ENTRY}:UnspoolLogitsProcessor"}
