import torch

from unspool.nn.rnn_attention import BilinearScore, DotScore


def test_by_hand():
    score = BilinearScore(1, 2)
    with torch.no_grad():
        score.key.weight.copy_(torch.tensor([[2.0, -1.0]]))
    memory = torch.tensor([[[1.0, 2.0], [0.0, -1.0]]])
    assert score(torch.tensor([[[3.0]]]), score.keys(memory)).tolist() == [[[0.0, 3.0]]]


def test_with_the_identity_it_is_the_inner_product():
    score = BilinearScore(3, 3)
    with torch.no_grad():
        score.key.weight.copy_(torch.eye(3))
    query, memory = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    torch.testing.assert_close(score(query, score.keys(memory)), DotScore(3, 3)(query, memory))
