import pytest
import torch

from unspool.models.loading.weights import parse_device


def test_what_is_there_is_taken_by_name_or_as_it_is():
    assert parse_device("cpu") == parse_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("name", ["foo", "", "cpu:x", None, [1]])
def test_an_unknown_device(name):
    with pytest.raises(ValueError, match=r"^device .* is unknown: .*cpu"):
        parse_device(name)


# Nobody has 99 graphics cards.
@pytest.mark.parametrize("name", ["cuda:99", "xpu:99", "hpu:99", torch.device("cuda:99")])
def test_a_device_that_is_not_there(name):
    with pytest.raises(ValueError, match=rf"^device '{name}' cannot be used here: .*cpu"):
        parse_device(name)


def test_the_choices_are_those_of_this_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(ValueError, match=r"choose from cpu, cuda:0, cuda:1, mps$"):
        parse_device("foo")
