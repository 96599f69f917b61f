import fnmatch
import sys

import huggingface_hub
import pytest

from unspool.models.loading.model_names import HUB_FILES, hub_folder, is_hub_id


@pytest.mark.parametrize("name", ["org/name", "HuggingFaceTB/SmolLM2-135M", "a/b.c_d-1"])
def test_ids(name):
    assert is_hub_id(name)


@pytest.mark.parametrize("name", ["name", "a/b/c", "../x", "a/..", "/a/b", "a/", "./b", "a b/c", "~/x", ""])
def test_what_is_no_id(name):
    assert not is_hub_id(name)


def test_only_data_is_asked_for(monkeypatch, tmp_path):
    asked = {}

    def download(repo, **options):
        asked.update(options, repo=repo)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert hub_folder("org/name") == tmp_path
    assert asked == {"repo": "org/name", "revision": None, "allow_patterns": list(HUB_FILES)}
    hub_folder("org/name", "v2")
    assert asked["revision"] == "v2"
    for name in (
        "pytorch_model.bin",
        "modeling_x.py",
        "model.gguf",
        "tf_model.h5",
        "optimizer.pt",
        "onnx/model.onnx",
    ):
        assert not any(fnmatch.fnmatch(name, pattern) for pattern in HUB_FILES)
    for name in ("model-00001-of-00002.safetensors", "config.json", "tokenizer.json"):
        assert any(fnmatch.fnmatch(name, pattern) for pattern in HUB_FILES)


def test_offline_without_a_copy_is_a_clear_error(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"'org/name' is not on this machine and cannot be fetched.*local folder"
    ):
        hub_folder("org/name")


@pytest.mark.parametrize("error", [ConnectionError("no route to host\nlong story"), PermissionError("gated")])
def test_the_hubs_own_errors_are_told_in_one_line(monkeypatch, error):
    def download(repo, **options):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(FileNotFoundError, match=rf"Hub: {str(error).splitlines()[0]} Check the id"):
        hub_folder("org/name")


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'unspool\[hub\]'"):
        hub_folder("org/name")
