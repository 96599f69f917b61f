import torch

from unspool.engine.compiled_transformer import compiled_language_model
from unspool.engine.step_memory import Work
from unspool.models import TransformerConfig


def test_there_is_room_for_everything_between_two_phases():
    torch.manual_seed(0)
    shape = TransformerConfig(vocab_size=30, width=16, layers=2, heads=4, kv_heads=2, inner_width=24)
    room = compiled_language_model(shape.build().eval()).work(3, 32)
    assert isinstance(room, Work)
    width, queries, heads = 16, (4 + 2 * 2) * 4, 4 * 4
    want = Work(width, width, width, queries, heads, 2 * 24, 24, 32, 0)
    assert [each.size for each in room] == [3 * size for size in want]


def test_queries_may_be_as_wide_as_the_model():
    sizes = {"width": 16, "layers": 2, "heads": 4, "kv_heads": 2, "inner_width": 24, "positions": "none"}
    shape = TransformerConfig(vocab_size=30, attention="keyless", **sizes)
    room = compiled_language_model(shape.build().eval()).work(3)
    assert room.qkv.size >= 3 * (4 * 16 + 2 * 4)
    assert room.mixed.size == 3 * 4 * 4
