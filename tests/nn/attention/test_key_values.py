import torch

from unspool.nn.attention import KeyValues


def columns(*values):
    """(2 rows, 1 head, T, 1): row 0 holds v, row 1 holds v + 100."""
    base = torch.tensor(values, dtype=torch.float32)
    return torch.stack((base, base + 100)).view(2, 1, -1, 1)


def test_appended_columns_stand_in_order():
    kept = KeyValues(room=1)
    kept.append(columns(1, 2), columns(-1, -2))
    keys, values = kept.append(columns(3), columns(-3))
    assert keys[0].flatten().tolist() == [1, 2, 3]
    assert values[0].flatten().tolist() == [-1, -2, -3]
    assert kept.length == 3


def test_it_grows_without_loss():
    kept = KeyValues()
    for t in range(40):
        keys, _ = kept.append(columns(t), columns(t))
    assert keys[1].flatten().tolist() == [100 + t for t in range(40)]


def test_rows_are_repeated_and_dropped():
    kept = KeyValues()
    kept.append(columns(1, 2), columns(1, 2))
    kept.select(torch.tensor([1, 1, 0]))
    keys, _ = kept.append(torch.zeros(3, 1, 1, 1), torch.zeros(3, 1, 1, 1))
    assert keys.flatten(1).tolist() == [[101, 102, 0], [101, 102, 0], [1, 2, 0]]


def test_select_since_leaves_earlier_columns():
    kept = KeyValues()
    kept.append(columns(1, 2), columns(1, 2))
    kept.select(torch.tensor([1, 0]), since=1)
    keys, _ = kept.append(columns(3), columns(3))
    assert keys.flatten(1).tolist() == [[1, 102, 3], [101, 2, 103]]


def test_truncated_columns_are_overwritten():
    kept = KeyValues()
    kept.append(columns(1, 2, 3), columns(1, 2, 3))
    kept.truncate(1)
    keys, _ = kept.append(columns(9), columns(9))
    assert keys[0].flatten().tolist() == [1, 9]
