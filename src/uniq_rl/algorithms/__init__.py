"""One file, one method, readable beside its paper."""

from uniq_rl.algorithms.base import Algorithm, Batch, Spec, Uncertainty, Windows
from uniq_rl.algorithms.bc import BC
from uniq_rl.algorithms.cql import CQL
from uniq_rl.algorithms.dt import DT
from uniq_rl.algorithms.edac import EDAC
from uniq_rl.algorithms.iql import IQL
from uniq_rl.algorithms.rebrac import ReBRAC
from uniq_rl.algorithms.sac_n import SACN
from uniq_rl.algorithms.td3_bc import TD3BC
from uniq_rl.algorithms.uniq import UNIQ
from uniq_rl.errors import UniqError

ALGORITHMS: dict[str, type[Algorithm]] = {
    method.name: method for method in (BC, TD3BC, CQL, IQL, SACN, EDAC, ReBRAC, DT, UNIQ)
}


def algorithm_named(name: str) -> type[Algorithm]:
    try:
        return ALGORITHMS[name]
    except KeyError:
        raise UniqError(f"There is no algorithm named '{name}'; choose one of {', '.join(ALGORITHMS)}.") from None


__all__ = [
    "ALGORITHMS",
    "BC",
    "CQL",
    "DT",
    "EDAC",
    "IQL",
    "SACN",
    "TD3BC",
    "UNIQ",
    "Algorithm",
    "Batch",
    "ReBRAC",
    "Spec",
    "Uncertainty",
    "Windows",
    "algorithm_named",
]
