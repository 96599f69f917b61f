import pytest

from unspool.models.loading.config_reader import ConfigReader, UnsupportedModelError
from unspool.models.loading.llama_families import rotary_settings
from unspool.nn.positions import RotaryScaling, YarnScaling


def read(**values):
    return rotary_settings(ConfigReader("config.json", {"max_position_embeddings": 64, **values}), 16)


def test_the_old_words_and_the_new_say_the_same():
    old = read(rope_theta=500.0, rope_scaling={"type": "linear", "factor": 4})
    new = read(rope_parameters={"rope_theta": 500.0, "rope_type": "linear", "factor": 4.0})
    assert old == new == {"rotary_base": 500.0, "rotary_factor": 4.0}
    assert read() == {"rotary_base": 10000.0}


def test_a_part_of_a_head_is_turned():
    assert read(partial_rotary_factor=0.5)["rotary_width"] == 8
    assert read(rope_parameters={"partial_rotary_factor": 0.25, "rope_theta": 1.0})["rotary_width"] == 4


def test_each_kind_of_stretching():
    llama = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    assert read(rope_parameters=llama)["rotary_scaling"] == RotaryScaling(8.0, 1.0, 4.0, 64)
    yarn = {"rope_type": "yarn", "original_max_position_embeddings": 16}
    assert read(rope_parameters=yarn)["rotary_yarn"] == YarnScaling(4.0, 16)
    both = yarn | {"mscale": 1.0, "mscale_all_dim": 1.0}
    assert read(rope_parameters=both)["rotary_yarn"].attention_factor == 1.0
    with pytest.raises(
        UnsupportedModelError, match="rotary scaling 'longrope' is unknown; known are default"
    ):
        read(rope_parameters={"rope_type": "longrope"})
