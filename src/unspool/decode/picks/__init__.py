"""Picks: how one token is drawn from a row of scores."""

from unspool.decode.picks.argmax import ArgMax
from unspool.decode.picks.basis_aware import BasisAware
from unspool.decode.picks.multinomial import Multinomial
from unspool.decode.picks.tau_rules import TAU_RULES, ConstantTau, EtaTau, NucleusTau

PICKS: dict[str, type] = {"ArgMax": ArgMax, "BasisAware": BasisAware, "Multinomial": Multinomial}

__all__ = [
    "PICKS",
    "TAU_RULES",
    "ArgMax",
    "BasisAware",
    "ConstantTau",
    "EtaTau",
    "Multinomial",
    "NucleusTau",
]
