import pytest

import unspool as us
from unspool.serve.requests import Limits, check_search


@pytest.mark.parametrize(
    "search",
    [us.Beam(65), us.MBR(65), us.ContrastiveSearch(k=65), us.MBR(4, us.Beam(100)), us.StochasticBeam(70)],
)
def test_a_search_that_is_too_wide_is_refused(search):
    with pytest.raises(ValueError, match="allows 64"):
        check_search(search, Limits())


@pytest.mark.parametrize(
    "search", [us.Greedy(), us.Sample(us.TopK(1000)), us.Beam(64), us.MBR(8, us.Sample())]
)
def test_others_are_let_through(search):
    check_search(search, Limits())
