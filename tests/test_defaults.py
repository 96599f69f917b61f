from unspool import config
from unspool.decode.search import Sample
from unspool.decode.spec import parse
from unspool.decode.transforms import Temperature, TopP


def test_the_default_decoder_is_one():
    assert parse(config.DECODER) == Sample(Temperature(0.8), TopP(0.95))
    assert config.MAX_NEW_TOKENS > 0
    assert config.MAX_BATCH_ROWS > 0
