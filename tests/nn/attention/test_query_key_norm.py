import pytest
import torch

from unspool.nn.attention import QueryKeyNorm


def test_by_hand():
    q, k = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[1.0, 7.0]])
    heads = QueryKeyNorm(2, 1, 2, 0.0, "head")
    found, _ = heads(q, k)
    # The mean squares of the heads are 12.5 and 2, of both together 7.25.
    torch.testing.assert_close(found, q / torch.tensor([[12.5], [2.0]]).sqrt())
    whole = QueryKeyNorm(2, 1, 2, 0.0, "whole")
    torch.testing.assert_close(whole(q, k)[0], q / 7.25**0.5)
    torch.testing.assert_close(whole(q, k)[1], heads(q, k)[1])  # of one head, both are the same


@pytest.mark.parametrize("kind", ["head", "whole"])
def test_the_length_of_what_comes_in_does_not_matter(kind):
    torch.manual_seed(0)
    q, k = torch.randn(5, 4, 6), torch.randn(5, 2, 6)
    norm = QueryKeyNorm(4, 2, 6, 0.0, kind)
    for one, other in zip(norm(q, k), norm(9 * q, 0.1 * k), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
