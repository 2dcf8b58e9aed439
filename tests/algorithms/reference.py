"""Methods once more, in NumPy, with gradients worked out by hand: one network at a time, nothing stacked or fused.

Written from the papers' equations (and FIELD section 3), not from the library.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
LEVELS = (0.5, 0.7, 0.9)


@dataclass
class Adam:
    """A list of arrays, and the moments that move it."""

    parameters: list[Array]
    first: list[Array] = field(default_factory=list)
    second: list[Array] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.parameters = [np.array(p, dtype=np.float64) for p in self.parameters]
        self.first = [np.zeros_like(p) for p in self.parameters]
        self.second = [np.zeros_like(p) for p in self.parameters]

    def step(self, gradients: list[Array], rate: float) -> None:
        self.count += 1
        for p, m, v, g in zip(self.parameters, self.first, self.second, gradients, strict=True):
            m *= 0.9
            m += 0.1 * g
            v *= 0.999
            v += 0.001 * g**2
            p -= rate * (m / (1 - 0.9**self.count)) / (np.sqrt(v / (1 - 0.999**self.count)) + 1e-8)


def forward(parameters: list[Array], x: Array) -> tuple[Array, list[Array]]:
    """A ReLU network `[W, b, W, b, ...]`: its output and the input of every layer."""
    inputs = []
    for i in range(0, len(parameters), 2):
        if i:
            x = np.maximum(x, 0)
        inputs.append(x)
        x = x @ parameters[i] + parameters[i + 1]
    return x, inputs


def backward(parameters: list[Array], inputs: list[Array], slope: Array) -> list[Array]:
    """Gradients of the parameters, given the slope of the loss in the output."""
    gradients: list[Array] = []
    for i in reversed(range(0, len(parameters), 2)):
        gradients = [inputs[i // 2].T @ slope, slope.sum(axis=0), *gradients]
        slope = (slope @ parameters[i].T) * (inputs[i // 2] > 0)
    return gradients


def input_slope(parameters: list[Array], inputs: list[Array], slope: Array) -> Array:
    """Slope of the loss in the network's input, given its slope in the output."""
    for i in reversed(range(0, len(parameters), 2)):
        slope = slope @ parameters[i].T
        if i:
            slope = slope * (inputs[i // 2] > 0)
    return slope


def value(parameters: list[Array], x: Array) -> Array:
    return forward(parameters, x)[0][:, 0]


def expectile_step(head: Adam, obs: Array, q: Array, tau: Array | float, rate: float) -> float:
    """Descend on the mean of `|tau - 1(q - v < 0)| (q - v)^2`; the loss before."""
    v, inputs = forward(head.parameters, obs)
    difference = q - v[:, 0]
    weight = np.abs(tau - (difference < 0))
    slope = -2 * weight * difference / len(q)
    head.step(backward(head.parameters, inputs, slope[:, None]), rate)
    return float(np.mean(weight * difference**2))


def critic_step(critic: Adam, obs_action: Array, target: Array, rate: float) -> float:
    """Descend on the mean squared error; the loss before. Critics' losses are summed: each has its own gradient."""
    q, inputs = forward(critic.parameters, obs_action)
    critic.step(backward(critic.parameters, inputs, 2 * (q - target[:, None]) / len(target)), rate)
    return float(np.mean((q[:, 0] - target) ** 2))


def actor_step(actor: Adam, obs: Array, action: Array, weight: Array, rate: float) -> float:
    """Descend on minus the mean of `weight * log N(action; tanh(net(obs)), exp(log_std))`, the loss before.

    Of the actor's parameters `log_std` comes last.
    """
    *net, log_std = actor.parameters
    z, inputs = forward(net, obs)
    mean, variance = np.tanh(z), np.exp(2 * np.clip(log_std, -5, 2))
    share = weight[:, None] / len(weight)
    slope_mean = -share * (action - mean) / variance
    slope_log_std = -(share * ((action - mean) ** 2 / variance - 1)).sum(axis=0)
    slope_log_std = np.where((log_std > -5) & (log_std < 2), slope_log_std, 0.0)
    log_prob = -0.5 * ((action - mean) ** 2 / variance + np.log(2 * np.pi * variance)).sum(axis=1)
    actor.step([*backward(net, inputs, slope_mean * (1 - mean**2)), slope_log_std], rate)
    return -float(np.mean(weight * log_prob))


def average(targets: list[list[Array]], online: list[Adam], step: float) -> None:
    for target, learner in zip(targets, online, strict=True):
        for t, p in zip(target, learner.parameters, strict=True):
            t += step * (p - t)


@dataclass
class Reference:
    """UNIQ; and IQL, which has one head, its expectile fixed."""

    settings: Any
    """An `IQL` or a `UNIQ`, read for its numbers and options only."""
    heads: list[Adam]
    """IQL: one; UNIQ: the members of a level side by side."""
    primary: Adam | None
    critics: list[Adam]
    target: list[list[Array]]
    actor: Adam
    q_hat: float = 1.0
    updates: int = 0

    def update_iql(self, batch: Any) -> dict[str, float]:
        s, rate = self.settings, self.settings.learning_rate
        obs_action = np.concatenate([batch.obs, batch.action], axis=1)
        q = np.min([value(t, obs_action) for t in self.target], axis=0)
        value_loss = expectile_step(self.heads[0], batch.obs, q, s.expectile, rate)
        v = value(self.heads[0].parameters, batch.obs)
        actor_loss = self.extract_policy(batch, q - v)
        target = batch.reward + s.gamma * batch.mask * value(self.heads[0].parameters, batch.next_obs)
        critic_loss = sum(critic_step(critic, obs_action, target, rate) for critic in self.critics)
        average(self.target, self.critics, s.ema)
        self.updates += 1
        losses = {"value_loss": value_loss, "actor_loss": actor_loss, "critic_loss": critic_loss}
        return losses | {"q": q.mean(), "v": v.mean()}

    def update_uniq(self, batch: Any) -> dict[str, float]:
        s, rate = self.settings, self.settings.learning_rate
        n = s.n_members
        obs_action = np.concatenate([batch.obs, batch.action], axis=1)
        behind = self.target if s.target == "q" else [critic.parameters for critic in self.critics]
        q = np.min([value(net, obs_action) for net in behind], axis=0)
        middle = self.heads[n : 2 * n]

        sigma = np.std([value(head.parameters, batch.obs) for head in middle], axis=0)
        u = sigma if s.calibrate == "none" else sigma / (self.q_hat + 1e-6)
        tau = s.tau_min + (s.tau_max - s.tau_min) / (1 + np.exp(s.beta_tau * (u - 1)))
        levels = [LEVELS[k // n] * (tau if s.reading == "effective" else 1) for k in range(3 * n)]
        value_loss = sum(
            expectile_step(head, batch.obs, q, level, rate) for head, level in zip(self.heads, levels, strict=True)
        )
        v = np.mean([value(head.parameters, batch.obs) for head in middle], axis=0)
        if self.primary is not None:
            expectile_step(self.primary, batch.obs, q, tau, rate)
            v = value(self.primary.parameters, batch.obs)
        actor_loss = self.extract_policy(batch, q - v)

        ahead = [head.parameters for head in middle] if s.target == "q" else self.target
        there = np.stack([value(net, batch.next_obs) for net in ahead])
        pessimistic = there.mean(axis=0) - s.kappa * there.std(axis=0)
        target = batch.reward + s.gamma * batch.mask * pessimistic
        critic_loss = sum(critic_step(critic, obs_action, target, rate) for critic in self.critics)
        average(self.target, self.critics if s.target == "q" else middle, s.ema)
        self.updates += 1
        losses = {"value_loss": value_loss, "actor_loss": actor_loss, "critic_loss": critic_loss}
        signals = {"q": q.mean(), "v": v.mean(), "sigma": sigma.mean(), "tau": tau.mean(), "u_above_1": (u > 1).mean()}
        return losses | signals

    def extract_policy(self, batch: Any, advantage: Array) -> float:
        s = self.settings
        weight = np.minimum(np.exp(s.beta_pi * advantage), s.weight_cap)
        decay = 0.5 * (1 + np.cos(np.pi * self.updates / s.decay_steps))
        return actor_step(self.actor, batch.obs, batch.action, weight, s.learning_rate * decay)

    def scores(self, batch: Any) -> Array:
        """Nonconformity of every row."""
        n = self.settings.n_members
        here, there = (
            np.stack([value(head.parameters, x) for head in self.heads[n : 2 * n]]) for x in (batch.obs, batch.next_obs)
        )
        if self.settings.calibrate == "disagreement":
            return here.std(axis=0)
        backup = batch.reward + self.settings.gamma * batch.mask * there.mean(axis=0)
        return np.abs(backup - here.mean(axis=0))


@dataclass
class DelayedReference:
    """TD3+BC, and ReBRAC without LayerNorm."""

    settings: Any
    """A `TD3BC` or a `ReBRAC`, read for its numbers only."""
    actor: Adam
    critics: list[Adam]
    target_actor: list[Array]
    target_critics: list[list[Array]]

    def update_critics(self, batch: Any, noise: Array) -> dict[str, float]:
        """`noise` is standard normal, one number per row and action dimension."""
        s = self.settings
        noise = np.clip(s.policy_noise * noise, -s.noise_clip, s.noise_clip)
        action = np.clip(np.tanh(forward(self.target_actor, batch.next_obs)[0]) + noise, -1, 1)
        next_obs_action = np.concatenate([batch.next_obs, action], axis=1)
        next_value = np.min([value(net, next_obs_action) for net in self.target_critics], axis=0)
        if s.name == "rebrac":
            known = ~np.isnan(batch.next_action[:, 0])
            next_value[known] -= s.beta2 * ((action - batch.next_action) ** 2).sum(axis=1)[known]
        target = batch.reward + s.gamma * batch.mask * next_value
        obs_action = np.concatenate([batch.obs, batch.action], axis=1)
        return {"critic_loss": sum(critic_step(c, obs_action, target, s.learning_rate) for c in self.critics)}

    def update(self, batch: Any, noise: Array) -> dict[str, float]:
        s = self.settings
        rows, width = batch.action.shape
        metrics = self.update_critics(batch, noise)
        z, inputs = forward(self.actor.parameters, batch.obs)
        action = np.tanh(z)
        distance = action - batch.action
        obs_action = np.concatenate([batch.obs, action], axis=1)
        asked = self.critics[:1] if s.name == "td3_bc" else self.critics
        passes = [forward(critic.parameters, obs_action) for critic in asked]
        every_q = np.stack([out[:, 0] for out, _ in passes])
        q = every_q.min(axis=0)
        scale = np.abs(q).mean()
        if s.name == "td3_bc":
            slope_q, slope_action = -s.alpha / scale / rows, 2 * distance / (rows * width)
            loss = -s.alpha / scale * q.mean() + (distance**2).mean()
        else:
            slope_q, slope_action = -1 / scale / rows, 2 * s.beta1 * distance / rows
            loss = (s.beta1 * (distance**2).sum(axis=1) - q / scale).mean()
        for critic, (_, critic_inputs), own in zip(asked, passes, every_q, strict=True):
            slope = np.where(own == q, slope_q, 0.0)[:, None]
            slope_action = slope_action + input_slope(critic.parameters, critic_inputs, slope)[:, -width:]
        self.actor.step(backward(self.actor.parameters, inputs, slope_action * (1 - action**2)), s.learning_rate)
        average([self.target_actor], [self.actor], s.ema)
        average(self.target_critics, self.critics, s.ema)
        return metrics | {"actor_loss": loss, "q": q.mean(), "distance": (distance**2).mean()}


def networks_of(ensemble: Any) -> list[list[Array]]:
    """The members of an `IndependentEnsemble`, each as `[W, b, W, b, ...]`."""

    def member(k: int) -> Iterator[Array]:
        for layer in ensemble.stacked.layers:
            yield np.array(layer.weight[k])
            yield np.array(layer.bias[k])

    return [list(member(k)) for k in range(len(ensemble.stacked.layers[0].bias))]


def actor_of(policy: Any) -> list[Array]:
    layers = [np.array(p) for layer in policy.mean.layers for p in (layer.weight, layer.bias)]
    return [*layers, np.array(policy.log_std)] if hasattr(policy, "log_std") else layers
