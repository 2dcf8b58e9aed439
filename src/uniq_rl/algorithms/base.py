"""What every method shares: the contract, a network with its optimiser, and the steps that papers have in common."""

import math
from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar, get_args, get_origin, get_type_hints

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from uniq_rl.data import Dataset
from uniq_rl.data.preprocessing import Preprocessing
from uniq_rl.data.split import Split
from uniq_rl.errors import UniqError
from uniq_rl.networks import Ensemble, IndependentEnsemble

Net = TypeVar("Net")
Aux = TypeVar("Aux")
State = Any
Memory = Any
Metrics = dict[str, Array]

ADAM = optax.scale_by_adam()


class Spec(NamedTuple):
    """The widths a network must fit."""

    obs_dim: int
    action_dim: int


class Batch(NamedTuple):
    """Transitions on the device; `mask` is 0 where the episode terminated and the bootstrap stops."""

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    mask: Array
    next_action: Array | None = None
    """What was done at `next_obs`, NaN where the log does not say; None unless the method `wants_next_action`."""


class Windows(NamedTuple):
    """Consecutive steps of one episode each, `[B, window, ...]`; `mask` is 0 where the episode was over already."""

    obs: Array
    action: Array
    return_to_go: Array
    """Undiscounted, in the rewards of the data, this step's included."""
    time_step: Array
    mask: Array


class Uncertainty(NamedTuple):
    """What a policy knows about its own ignorance, one number per state."""

    sigma: Array
    """Disagreement of the value ensemble."""
    u: Array
    """Disagreement in units of the calibrated quantile; above 1 a state is poorly covered."""
    tau: Array
    """The expectile the controller chose: low is conservative."""
    delta: Array | None
    """Spread between the 0.9 and the 0.5 expectile: noise in the returns, not ignorance. None without such heads."""


def static(default: Any) -> Any:
    """A hyper-parameter that shapes the program: equal for all runs of a cohort."""
    if isinstance(default, tuple):  # a list, as JSON gives it, could not be part of a program's identity
        return eqx.field(static=True, default=default, converter=tuple)
    return eqx.field(static=True, default=default)


class Algorithm(eqx.Module):
    """A method *is* its hyper-parameters: numbers are leaves that may differ between runs, the rest is static."""

    name: ClassVar[str]
    published_steps: ClassVar[int] = 1_000_000
    """Updates of the published results."""
    wants_next_action: ClassVar[bool] = False
    """Whether batches carry `next_action`; a method that does not use it should not pay for it."""

    batch_size: int = static(256)
    """Transitions per update."""
    reward_scaling: Literal["none", "return_range"] = static("none")
    """return_range: rewards times 1000 / (largest minus smallest episode return), as official IQL."""
    normalize_obs: bool = static(False)
    """Observations to mean 0 and standard deviation 1."""
    split: Literal["transition", "episode"] = static("transition")
    """Calibration rows drawn one by one, or by whole episodes."""
    calibration_fraction: float = static(0.0)
    """Share of the data that calibrates and is never trained on."""
    heldout_fraction: float = static(0.0)
    """Share of the episodes that neither trains nor calibrates and measures coverage (from 40 episodes on)."""

    @property
    def preprocessing(self) -> Preprocessing:
        """What this method wants done to the data."""
        return Preprocessing(reward=self.reward_scaling, normalize_obs=self.normalize_obs)

    @property
    def folds(self) -> Split:
        return Split(calibration=self.calibration_fraction, heldout=self.heldout_fraction, by=self.split)

    @property
    def window_length(self) -> int | None:
        """How many steps of an episode an update sees in a row, as `Windows`; None: single ones, as a `Batch`."""
        return None

    @property
    def calibration_interval(self) -> int | None:
        """Updates between two calibrations; None for methods that do not calibrate."""
        return None

    @property
    def knows_uncertainty(self) -> bool:
        """Whether `uncertainty` has an answer."""
        return False

    @classmethod
    def preset(cls, name: str, task: str | None, kind: str | None) -> Self:
        """The published settings for a task (`hopper`) and kind of data (`medium-replay`)."""
        if name != "paper":
            raise UniqError(f"There is no preset named '{name}'; the one there is, is 'paper'.")
        return cls()

    def __check_init__(self) -> None:
        for field, kind in get_type_hints(type(self)).items():
            if get_origin(kind) is not ClassVar:
                self.check_kind(field, kind, getattr(self, field))
        self.require("batch_size", self.batch_size, at_least=1)
        for field in ("calibration_fraction", "heldout_fraction"):
            self.require(field, getattr(self, field), at_least=0, below=1)
        if self.window_length is not None and self.calibration_fraction > 0 and self.split == "transition":
            raise UniqError(f"{self.name} learns from whole episodes: split by episode, or set calibration_fraction 0.")

    def check_kind(self, field: str, kind: Any, value: Any) -> None:
        """Refuse an unknown choice, or something that is no number where one is needed."""
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise UniqError(f"{self.name}: {field} is {value!r}, but it must be one of {', '.join(get_args(kind))}.")
        numbers = value if kind == tuple[int, ...] else (value,)
        whole = kind in (int, tuple[int, ...])
        if (whole and not all(isinstance(number, Integral) for number in numbers)) or (
            kind in (float, float | None) and isinstance(value, str | bytes | bool)
        ):
            raise UniqError(f"{self.name}: {field} is {value!r}, but it must be {'whole' if whole else 'a number'}.")

    def require(
        self, field: str, value: Any, *, at_least: float = 0, below: float = math.inf, at_most: float = math.inf
    ) -> None:
        """Refuse a number outside its bounds; arrays, inside a cohort, were checked as numbers before."""
        if not isinstance(value, Real) or (
            at_least <= float(value) <= at_most and (float(value) < below or below == math.inf)
        ):
            return
        upper = f" and below {below}" if below < math.inf else f" and at most {at_most}" if at_most < math.inf else ""
        raise UniqError(f"{self.name}: {field} is {value}, but it must be at least {at_least}{upper}.")

    def budgeted(self, steps: int) -> Self:
        """This method with everything that is scheduled over the whole training fitted to `steps` updates."""
        return self

    def informed(self, dataset: Dataset) -> Self:
        """This method with everything that was left for the data to decide, decided."""
        return self

    @abstractmethod
    def init(self, key: Array, spec: Spec) -> State: ...

    @abstractmethod
    def update(self, state: State, batch: Any, key: Array) -> tuple[State, Metrics]:
        """One step on a `Batch`, or on `Windows` where there is a `window_length`."""

    def cycle(self) -> tuple[Callable[[State, Any, Array], tuple[State, Metrics]], ...]:
        """The updates that take turns, the whole one last: a delayed actor rests in those before it."""
        return (self.update,)

    @abstractmethod
    def act(self, state: State, obs: Array, memory: Memory) -> tuple[Array, Memory]:
        """Deterministic actions for a batch of observations; reactive methods pass `memory` through."""

    def rewarded(self, memory: Memory, reward: Array) -> Memory:
        """What is remembered once the actions' rewards are known; reactive methods remember nothing."""
        return memory

    @abstractmethod
    def deployed(self, state: State) -> State:
        """The state without what `act` and `uncertainty` do not need."""

    def nonconformity(self, state: State, batch: Batch) -> Array:
        """One score per calibration row."""
        raise TypeError(f"{self.name} does not calibrate")

    def recalibrated(self, state: State, q_hat: Array) -> State:
        raise TypeError(f"{self.name} does not calibrate")

    def uncertainty(self, state: State, obs: Array) -> Uncertainty:
        raise UniqError(f"{self.name} learns no uncertainty; train with UNIQ for sigma, u, tau and delta.")

    def value(self, state: State, obs: Array) -> Array:
        """`V(s)` as the method is uncertain about it: sigma is the disagreement on this number."""
        raise UniqError(f"{self.name} keeps no value that it could be uncertain about; train with UNIQ for one.")


class Learner(eqx.Module, Generic[Net]):
    """A network and the moments of its Adam."""

    net: Net
    moments: optax.OptState

    @classmethod
    def of(cls, net: Net) -> "Learner[Net]":
        return cls(net, ADAM.init(net))

    def descend(
        self,
        loss: Callable[[Net], tuple[Array, Aux]],
        rate: Array | float,
        clip: Array | float | None = None,
        weight_decay: Array | float | None = None,
    ) -> tuple["Learner[Net]", Aux]:
        """One Adam step on `loss`, which returns its value and whatever else the caller wants from that pass.

        `clip` bounds the norm of the whole gradient before it; `weight_decay` makes it AdamW.
        """
        gradient, aux = jax.grad(loss, has_aux=True)(self.net)
        if clip is not None:
            norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradient)))
            shrink = clip / jnp.maximum(norm, clip)
            gradient = jax.tree.map(lambda g: shrink * g, gradient)
        direction, moments = ADAM.update(gradient, self.moments)
        if weight_decay is not None:
            direction = jax.tree.map(lambda d, p: d + weight_decay * p, direction, self.net)
        return Learner(jax.tree.map(lambda p, d: p - rate * d, self.net, direction), moments), aux

    def frozen(self) -> "Learner[Net]":
        """The network alone, to use but not to train."""
        return Learner(self.net, None)


def only(state: Net, **kept: Any) -> Net:
    """A state with nothing but the fields in `kept`."""
    fields: tuple[str, ...] = state._fields  # type: ignore[attr-defined]
    return type(state)(**{name: kept.get(name) for name in fields})


def moved_towards(target: Net, online: Net, step: Array | float) -> Net:
    """Exponential moving average: `target + step (online - target)`."""
    return jax.tree.map(lambda t, o: t + step * (o - t), target, online)


def critic_ensemble(
    key: Array, count: int, spec: Spec, hidden: tuple[int, ...], last: float | None = None, layer_norm: bool = False
) -> IndependentEnsemble:
    return IndependentEnsemble.init(key, count, spec.obs_dim + spec.action_dim, hidden, last, layer_norm)


def q_values(critic: Ensemble, obs: Array, action: Array) -> Array:
    """`Q(s, a)` of every critic, `[critics, B]`."""
    return critic(jnp.concatenate([obs, action], axis=-1))


def td_loss(q: Array, target: Array) -> Array:
    """Mean over the batch, sum over the critics."""
    return jnp.sum(jnp.mean(jnp.square(q - target[None]), axis=-1))


def fit_critics(
    critic: Learner[IndependentEnsemble],
    batch: Batch,
    next_value: Array,
    gamma: Array | float,
    rate: Array | float,
) -> tuple[Learner[IndependentEnsemble], Array]:
    """Squared error to `r + gamma (1 - d) V(s')` (`eq:target_app`)."""
    target = batch.reward + gamma * batch.mask * next_value

    def loss(net: IndependentEnsemble) -> tuple[Array, Array]:
        value = td_loss(q_values(net, batch.obs, batch.action), target)
        return value, value

    return critic.descend(loss, rate)


def advantage_weights(advantage: Array, beta_pi: Array | float, cap: Array | float) -> Array:
    """`exp(beta (Q - V))`, capped so that one lucky action cannot own the batch (`eq:awr_weight`)."""
    return jnp.minimum(jnp.exp(beta_pi * advantage), cap)


def cosine_decay(step: Array, steps: Array | float) -> Array:
    """From 1 at the first update to 0 at the last."""
    return 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(step / steps, 1)))
