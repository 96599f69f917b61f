import pytest

from unspool.models.loading.config_reader import ConfigReader, UnsupportedModelError


def test_an_option_that_is_not_ours_is_told_from_one_that_is_wrong():
    settings = ConfigReader("config.json", {"hidden_act": "mish", "hidden_size": "wide"})
    with pytest.raises(UnsupportedModelError, match="hidden_act is 'mish'"):
        settings.demand("hidden_act", "silu")
    with pytest.raises(ValueError, match="hidden_size is 'wide'") as caught:
        settings.integer("hidden_size")
    assert not isinstance(caught.value, UnsupportedModelError)
