import torch

from unspool.engine.compiled_transformer import compiled_language_model
from unspool.engine.step_memory import Workspace
from unspool.models import TransformerConfig


def test_workspace_sizes():
    torch.manual_seed(0)
    shape = TransformerConfig(vocab_size=30, width=16, layers=2, heads=4, kv_heads=2, inner_width=24)
    workspace = compiled_language_model(shape.build().eval()).workspace(3, 32)
    assert isinstance(workspace, Workspace)
    width, queries, heads = 16, (4 + 2 * 2) * 4, 4 * 4
    want = Workspace(width, width, width, queries, heads, 2 * 24, 24, 32, 0)
    assert [each.size for each in workspace] == [3 * size for size in want]


def test_workspace_of_keyless_attention():
    sizes = {"width": 16, "layers": 2, "heads": 4, "kv_heads": 2, "inner_width": 24, "positions": "none"}
    shape = TransformerConfig(vocab_size=30, attention="keyless", **sizes)
    workspace = compiled_language_model(shape.build().eval()).workspace(3)
    assert workspace.qkv.size >= 3 * (4 * 16 + 2 * 4)
    assert workspace.mixed.size == 3 * 4 * 4
