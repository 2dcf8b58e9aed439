"""One file, one method, readable beside its paper."""

from uniq_rl.algorithms.base import Algorithm, Batch, Spec, Uncertainty, Windows
from uniq_rl.algorithms.bc import BC
from uniq_rl.algorithms.dt import DT
from uniq_rl.algorithms.iql import IQL
from uniq_rl.algorithms.uniq import UNIQ
from uniq_rl.errors import UniqError

ALGORITHMS: dict[str, type[Algorithm]] = {method.name: method for method in (BC, IQL, DT, UNIQ)}


def algorithm_named(name: str) -> type[Algorithm]:
    try:
        return ALGORITHMS[name]
    except KeyError:
        raise UniqError(f"There is no algorithm named '{name}'; choose one of {', '.join(ALGORITHMS)}.") from None


__all__ = [
    "ALGORITHMS",
    "BC",
    "DT",
    "IQL",
    "UNIQ",
    "Algorithm",
    "Batch",
    "Spec",
    "Uncertainty",
    "Windows",
    "algorithm_named",
]
