"""UNIQ: implicit Q-learning whose expectile adapts to conformally calibrated uncertainty.

The order of one update is the paper's: how much do the value heads disagree, how much is that in units of the
calibrated quantile, which expectile follows; then values, policy, critics.
"""

import dataclasses
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from uniq_rl.algorithms.base import (
    Batch,
    Learner,
    Memory,
    Metrics,
    Spec,
    Uncertainty,
    critic_ensemble,
    moved_towards,
    only,
    q_values,
    static,
)
from uniq_rl.algorithms.iql import ImplicitActorCritic
from uniq_rl.conservatism import (
    LEVELS,
    Calibration,
    adaptive_expectile,
    bellman_score,
    calibrated_uncertainty,
    disagreement,
    expectile_loss,
    pessimistic_value,
    spread,
)
from uniq_rl.networks import Ensemble, EnsembleKind, GaussianPolicy, IndependentEnsemble, value_ensemble

CONFIG_A_TASKS = {("halfcheetah", "medium-expert"), ("hopper", "medium-replay")}


class UNIQState(NamedTuple):
    ensemble: Learner[Any]
    """Value heads, `N_v` of each level, the members of a level side by side."""
    primary: Learner[IndependentEnsemble] | None
    """The separate `V_phi` of Algorithm 1; only with `reading="primary"`."""
    critic: Learner[IndependentEnsemble]
    target: Any
    """What the moving average follows: the critics, or the level-0.7 heads with `target="v"`."""
    actor: Learner[GaussianPolicy]
    q_hat: Array
    step: Array


class UNIQ(ImplicitActorCritic):
    """IQL with an expectile per state, set by conformally calibrated disagreement."""

    name: ClassVar[str] = "uniq"

    calibration_fraction: float = static(0.2)
    """Share of the data that calibrates and is never trained on."""
    heldout_fraction: float = static(0.05)
    """Share of the episodes that neither trains nor calibrates and measures coverage (from 40 episodes on)."""
    n_members: int = static(3)
    """Value heads per expectile level; their disagreement is sigma."""
    outer_levels: bool = static(True)
    """Also train heads at 0.5 and 0.9: the spread Delta(s), a diagnostic, is made of them, and nothing else."""
    reading: Literal["effective", "primary"] = static("effective")
    """Who gets `tau(s)`: the heads themselves, at `tau(s) * level`, or a separate value network."""
    target: Literal["q", "v"] = static("q")
    """What is averaged over time: the critics, as in IQL, or the level-0.7 heads of the TD target."""
    ensemble: EnsembleKind = static("independent")
    """Separate networks, or shared features with a head of low rank for each."""
    rank: int = static(32)
    """Units of a head of its own, in a low-rank ensemble."""
    calibrate: Calibration = static("bellman")
    """What `q_hat` is a quantile of: Bellman residuals, the disagreement itself, or nothing (`u` is raw `sigma`)."""
    recalibrate_every: int = static(5000)
    """Updates between calibrations."""
    kappa: float = 0.5
    """Pessimism: how many sigma are taken off the value of the next state."""
    tau_min: float = 0.5
    """The expectile where uncertainty is high."""
    tau_max: float = 0.9
    """The expectile where it is low."""
    beta_tau: float = 5.0
    """How sharply the expectile falls as u passes 1."""
    delta: float = 0.1
    """Miscoverage: the share of new scores that q_hat may miss."""

    def __check_init__(self) -> None:
        self.require("the number of hidden layers", len(self.hidden), at_least=1)
        for field in ("n_members", "rank", "recalibrate_every"):
            self.require(field, getattr(self, field), at_least=1)
        for field in ("kappa", "beta_tau", "tau_min"):
            self.require(field, getattr(self, field), at_least=0)
        self.require("tau_max", self.tau_max, at_least=self.tau_min, at_most=1)

    @property
    def calibration_interval(self) -> int | None:
        return None if self.calibrate == "none" else self.recalibrate_every

    @property
    def knows_uncertainty(self) -> bool:
        return True

    @classmethod
    def preset(cls, name: str, task: str | None, kind: str | None) -> Self:
        """Configuration A for the two tasks the paper names, B for everything else."""
        config_b = super().preset(name, task, kind)
        return dataclasses.replace(config_b, kappa=0.0, tau_max=0.95) if (task, kind) in CONFIG_A_TASKS else config_b

    def init(self, key: Array, spec: Spec) -> UNIQState:
        ensemble_key, primary_key, critic_key, actor_key = jax.random.split(key, 4)
        heads = len(LEVELS) * self.n_members
        all_levels = value_ensemble(self.ensemble, ensemble_key, heads, spec.obs_dim, self.hidden, self.rank)
        ensemble = all_levels if self.outer_levels else all_levels.members(self.n_members, 2 * self.n_members)
        critic = critic_ensemble(critic_key, self.critics, spec, self.hidden)
        primary = IndependentEnsemble.init(primary_key, 1, spec.obs_dim, self.hidden)
        return UNIQState(
            ensemble=Learner.of(ensemble),
            primary=Learner.of(primary) if self.reading == "primary" else None,
            critic=Learner.of(critic),
            target=critic if self.target == "q" else self.middle(ensemble),
            actor=Learner.of(GaussianPolicy.init(actor_key, spec.obs_dim, spec.action_dim, self.hidden)),
            q_hat=jnp.ones(()),
            step=jnp.zeros((), jnp.int32),
        )

    @property
    def levels(self) -> tuple[float, ...]:
        return LEVELS if self.outer_levels else LEVELS[1:2]

    def middle(self, ensemble: Any) -> Any:
        """The members of level 0.7 alone."""
        return ensemble.members(self.n_members, 2 * self.n_members) if self.outer_levels else ensemble

    def by_level(self, heads: Array) -> Array:
        """`[levels N_v, B]` as `[level, member, B]`."""
        return heads.reshape(len(self.levels), self.n_members, -1)

    def controller(self, sigma: Array, q_hat: Array) -> tuple[Array, Array]:
        """`u(s)` and `tau(s)`."""
        u = sigma if self.calibrate == "none" else calibrated_uncertainty(sigma, q_hat)
        return u, adaptive_expectile(u, self.tau_min, self.tau_max, self.beta_tau)

    def update(self, state: UNIQState, batch: Batch, key: Array) -> tuple[UNIQState, Metrics]:
        critic_behind = state.target if self.target == "q" else state.critic.net
        q = jnp.min(q_values(critic_behind, batch.obs, batch.action), axis=0)
        levels = jnp.asarray(self.levels, q.dtype)[:, None, None]

        def ensemble_loss(net: Ensemble) -> tuple[Array, tuple[Array, ...]]:
            heads = self.by_level(net(batch.obs))
            sigma = disagreement(jax.lax.stop_gradient(heads[len(heads) // 2]))
            u, tau = self.controller(sigma, state.q_hat)
            expectile = levels * tau[None, None] if self.reading == "effective" else levels
            loss = jnp.sum(jnp.mean(expectile_loss(q[None, None] - heads, expectile), axis=-1))
            return loss, (loss, sigma, u, tau)

        ensemble, (value_loss, sigma, u, tau) = state.ensemble.descend(ensemble_loss, self.learning_rate)
        middle = self.middle(ensemble.net)
        v, next_members = self.values(state, batch, middle)

        primary = state.primary
        if primary is not None:

            def primary_loss(net: IndependentEnsemble) -> tuple[Array, None]:
                return jnp.mean(expectile_loss(q - net(batch.obs)[0], tau)), None

            primary, _ = primary.descend(primary_loss, self.learning_rate)
            v = primary.net(batch.obs)[0]

        actor, actor_loss = self.extract_policy(state.actor, batch, q - v, state.step)
        v_pess = pessimistic_value(jnp.mean(next_members, axis=0), disagreement(next_members), self.kappa)
        critic, critic_loss = self.fit_critics(state.critic, batch, v_pess)
        target = moved_towards(state.target, critic.net if self.target == "q" else middle, self.ema)
        metrics = {
            "value_loss": value_loss,
            "critic_loss": critic_loss,
            "actor_loss": actor_loss,
            "q": jnp.mean(q),
            "v": jnp.mean(v),
            "sigma": jnp.mean(sigma),
            "tau": jnp.mean(tau),
            "u_above_1": jnp.mean(u > 1),
        }
        return UNIQState(ensemble, primary, critic, target, actor, state.q_hat, state.step + 1), metrics

    def values(self, state: UNIQState, batch: Batch, middle: Ensemble) -> tuple[Array, Array]:
        """Mean level-0.7 value of `s` (the policy's baseline) and the members' values of `s'`."""
        if self.target == "v":
            return jnp.mean(middle(batch.obs), axis=0), state.target(batch.next_obs)
        here, there = jnp.split(middle(jnp.concatenate([batch.obs, batch.next_obs])), 2, axis=-1)
        return jnp.mean(here, axis=0), there

    def nonconformity(self, state: UNIQState, batch: Batch) -> Array:
        here = self.middle(state.ensemble.net)(batch.obs)
        if self.calibrate == "disagreement":
            return disagreement(here)
        there = self.middle(state.ensemble.net)(batch.next_obs)
        return bellman_score(batch.reward, batch.mask, jnp.mean(here, axis=0), jnp.mean(there, axis=0), self.gamma)

    def recalibrated(self, state: UNIQState, q_hat: Array) -> UNIQState:
        return state._replace(q_hat=q_hat)

    def act(self, state: UNIQState, obs: Array, memory: Memory) -> tuple[Array, Memory]:
        return state.actor.net.mode(obs), memory

    def uncertainty(self, state: UNIQState, obs: Array) -> Uncertainty:
        heads = self.by_level(state.ensemble.net(obs))
        sigma = disagreement(heads[len(heads) // 2])
        u, tau = self.controller(sigma, state.q_hat)
        return Uncertainty(sigma, u, tau, spread(upper=heads[2], lower=heads[0]) if self.outer_levels else None)

    def value(self, state: UNIQState, obs: Array) -> Array:
        return jnp.mean(self.middle(state.ensemble.net)(obs), axis=0)

    def deployed(self, state: UNIQState) -> UNIQState:
        return only(state, ensemble=state.ensemble.frozen(), actor=state.actor.frozen(), q_hat=state.q_hat)
