"""What a user takes away: a policy that acts, says how uncertain it is, and lives in one safetensors file."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from uniq_rl.algorithms import Algorithm, Spec, Uncertainty, algorithm_named
from uniq_rl.algorithms.base import Memory, State
from uniq_rl.data import Bounds
from uniq_rl.errors import UniqError
from uniq_rl.storage import load_header, load_tree, save_tree

FORMAT = "policy-1"


class Policy(eqx.Module):
    """A trained method, reduced to what acting needs, with the preprocessing it was trained behind.

    Call it with one observation or a batch: `policy(obs)` gives actions in the range the data had (mostly [-1, 1]),
    `policy.uncertainty(obs)` gives `sigma`, `u`, `tau` and `delta` per state. A method that looks back on its episode
    acts there as if each observation were the first of one; roll it out with `act` and `rewarded`.
    """

    algorithm: Algorithm
    state: State
    obs_mean: Any
    obs_std: Any
    action_low: Any
    action_high: Any
    spec: Spec = eqx.field(static=True)

    def act(self, obs: Array, memory: Memory = None) -> tuple[Array, Memory]:
        """Actions in [-1, 1] for a batch `[B, obs_dim]`; pure, for use under `jit` and `vmap`."""
        action, memory = self.algorithm.act(self.state, self.normalized(obs), memory)
        return jnp.clip(action, -1, 1), memory

    def rewarded(self, memory: Memory, reward: Array) -> Memory:
        """What `act` is to remember next, once the rewards `[B]` of its actions are known; pure as well."""
        return self.algorithm.rewarded(memory, reward)

    def normalized(self, obs: Array) -> Array:
        return (obs - self.obs_mean[None]) / self.obs_std[None]

    def __call__(self, obs: npt.ArrayLike) -> np.ndarray:
        return self.restored(self._apply(_act, obs))

    def restored(self, action: npt.ArrayLike) -> np.ndarray:
        """Actions in [-1, 1], as `act` gives them, in the range the data had."""
        bounds = Bounds(np.asarray(self.action_low), np.asarray(self.action_high))
        return np.asarray(action) if bounds.are_unit() else bounds.restore(np.asarray(action))

    def uncertainty(self, obs: npt.ArrayLike) -> Uncertainty:
        uncertainty: Uncertainty = self._apply(_uncertainty, obs)
        return uncertainty

    def _apply(self, program: Callable[["Policy", Array], Any], obs: npt.ArrayLike) -> Any:
        batch = np.asarray(obs, np.float32)
        if batch.ndim not in (1, 2) or batch.shape[-1] != self.spec.obs_dim:
            raise UniqError(
                f"The policy was trained on observations of width {self.spec.obs_dim}, but got an array of shape "
                f"{batch.shape}; pass [{self.spec.obs_dim}] or [batch, {self.spec.obs_dim}]."
            )
        result = program(self, jnp.atleast_2d(batch))
        return jax.tree.map(lambda leaf: np.asarray(leaf if batch.ndim == 2 else leaf[0]), result)

    def save(self, path: str | Path) -> None:
        header = {
            "format": FORMAT,
            "algorithm": self.algorithm.name,
            "config": config_of(self.algorithm),
            "spec": self.spec._asdict(),
        }
        save_tree(Path(path), self._arrays(), header)

    def _arrays(self) -> dict[str, Any]:
        names = ("state", "obs_mean", "obs_std", "action_low", "action_high")
        return {name: getattr(self, name) for name in names}


# Compiled once per structure of policy: `jax.jit` traces the hyper-parameters, which `eqx.filter_jit` would bake in.
_act = jax.jit(lambda policy, batch: policy.act(batch)[0])
_uncertainty = jax.jit(lambda policy, batch: policy.algorithm.uncertainty(policy.state, policy.normalized(batch)))


def load_policy(path: str | Path) -> Policy:
    """The policy that `Policy.save` wrote."""
    path = Path(path)
    header = load_header(path)
    if header.get("format") != FORMAT:
        raise UniqError(f"{path} holds '{header.get('format')}', not a policy this version reads ('{FORMAT}').")
    try:
        algorithm = algorithm_from(header["algorithm"], header["config"])
        spec = Spec(**header["spec"])
    except (KeyError, TypeError) as error:
        raise UniqError(f"{path} does not describe its policy properly ({error}); it is damaged.") from None
    state = jax.eval_shape(lambda key: algorithm.deployed(algorithm.init(key, spec)), jax.random.key(0))
    obs, action = (jax.ShapeDtypeStruct((width,), np.dtype(np.float32)) for width in spec)
    template = {"state": state, "obs_mean": obs, "obs_std": obs, "action_low": action, "action_high": action}
    arrays = load_tree(path, template)
    return Policy(algorithm=algorithm, spec=spec, **jax.tree.map(jnp.asarray, arrays))


def config_of(algorithm: Algorithm) -> dict[str, Any]:
    """The hyper-parameters of a single run, as JSON can hold them."""
    config = {field.name: getattr(algorithm, field.name) for field in dataclasses.fields(algorithm)}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in config.items()}


def algorithm_from(name: str, config: dict[str, Any]) -> Algorithm:
    method = algorithm_named(name)
    unknown = set(config) - {field.name for field in dataclasses.fields(method)}
    if unknown:
        raise UniqError(f"{name} has no hyper-parameter named {', '.join(sorted(unknown))}.")
    return method(**config)
