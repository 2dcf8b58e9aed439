"""Decision Transformer (Chen et al., 2021): imitate what was done whenever as much return as wanted followed.

Neither values nor bootstrap: a causal transformer reads returns-to-go, observations and actions of the last steps in
turn and predicts the action after each observation. To act well, ask it for a high return.
"""

import dataclasses
from typing import ClassVar, Literal, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from uniq_rl.algorithms.base import Algorithm, Learner, Memory, Metrics, Spec, Windows, only, static
from uniq_rl.data import Dataset
from uniq_rl.errors import UniqError
from uniq_rl.networks import Dense
from uniq_rl.transformer import Transformer, dense, each_token, embedded, initial

TARGETS = {"halfcheetah": 12_000.0, "hopper": 3600.0, "walker2d": 5000.0}
"""The larger of the two published target returns of each task."""
RETURN_SCALE = 1000.0
"""What the published returns-to-go are divided by."""
WARMUP = 10_000
"""Published updates of warm-up, out of 100,000."""


class DecisionTransformer(eqx.Module):
    """Returns-to-go, observations and actions as tokens of one sequence, step by step in this order."""

    return_to_go: Dense
    obs: Dense
    action: Dense
    time: Array
    """What is added to the three tokens of a time step, `[horizon, dim]`."""
    transformer: Transformer
    head: Dense

    @classmethod
    def init(cls, key: Array, spec: Spec, horizon: int, blocks: int, dim: int, heads: int) -> Self:
        return_key, obs_key, action_key, time_key, transformer_key, head_key = jax.random.split(key, 6)
        return cls(
            return_to_go=dense(return_key, 1, dim),
            obs=dense(obs_key, spec.obs_dim, dim),
            action=dense(action_key, spec.action_dim, dim),
            time=initial(time_key, horizon, dim),
            transformer=Transformer.init(transformer_key, blocks, dim, heads),
            head=dense(head_key, dim, spec.action_dim),
        )

    def __call__(
        self,
        return_to_go: Array,
        obs: Array,
        action: Array,
        time_step: Array,
        dropout: Array | float = 0.0,
        key: Array | None = None,
    ) -> Array:
        """The action predicted at each step, `[B, window, action_dim]`, from what was known before it was taken."""
        time = embedded(self.time, jnp.clip(time_step, 0, len(self.time) - 1))
        parts = ((self.return_to_go, return_to_go[..., None]), (self.obs, obs), (self.action, action))
        tokens = jnp.stack([each_token(layer, x) + time for layer, x in parts], axis=2)
        batch, window, kinds, dim = tokens.shape
        read = self.transformer(tokens.reshape(batch, window * kinds, dim), dropout, key).reshape(tokens.shape)
        return jnp.tanh(each_token(self.head, read[:, :, 1]))


class DTState(NamedTuple):
    actor: Learner[DecisionTransformer]
    step: Array


class Recall(NamedTuple):
    """What is remembered of each episode: its last steps, oldest first, empty places behind them."""

    return_to_go: Array
    obs: Array
    action: Array
    steps: Array
    """How many the episode has had."""
    wanted: Array
    """The return still to come."""


class DT(Algorithm):
    """Decision Transformer: actions conditioned on the return that is to follow."""

    name: ClassVar[str] = "dt"
    published_steps: ClassVar[int] = 100_000

    batch_size: int = static(4096)
    """Windows per update."""
    reward_scaling: Literal["none"] = static("none")
    """Returns are those of the data; see return_scale."""
    normalize_obs: bool = static(True)
    """Observations to mean 0 and standard deviation 1."""
    window: int = static(20)
    """Time steps the policy looks back on, the present one included."""
    horizon: int = static(1000)
    """Time steps told apart; all later ones count as the last of them."""
    blocks: int = static(3)
    """Blocks of the transformer."""
    heads: int = static(1)
    """Attention heads of a block; they share its width."""
    dim: int = static(128)
    """Width of a token."""
    dropout: float = 0.1
    """Share of the embeddings, attention weights and block outputs left out at random in training."""
    learning_rate: float = 8e-4
    """AdamW's; 8e-4 goes with 4096 windows per update, 1e-4 with 64."""
    weight_decay: float = 1e-4
    """AdamW's: each update shrinks all weights by this times the learning rate."""
    gradient_clip: float = 0.25
    """Largest norm of the whole gradient."""
    warmup_steps: float | None = None
    """Updates over which the learning rate rises to its full; None: 10,000, or a tenth of a shorter budget."""
    return_scale: float | None = None
    """What returns-to-go are divided by; None: the largest return in the data. The paper's tasks: 1000."""
    target_return: float | None = None
    """The return to ask for when acting; None: the best in the data."""

    def __check_init__(self) -> None:
        for field in ("window", "horizon", "blocks", "heads", "dim"):
            self.require(field, getattr(self, field), at_least=1)
        if self.dim % self.heads:
            raise UniqError(f"{self.name}: dim is {self.dim}, but it must be a multiple of heads ({self.heads}).")
        for field in ("learning_rate", "weight_decay", "gradient_clip"):
            self.require(field, getattr(self, field), at_least=0)
        self.require("dropout", self.dropout, at_least=0, below=1)
        self.require("warmup_steps", self.warmup_steps, at_least=1)
        self.require("return_scale", self.return_scale, at_least=1e-6)

    @property
    def window_length(self) -> int:
        return self.window

    @classmethod
    def preset(cls, name: str, task: str | None, kind: str | None) -> Self:
        defaults = super().preset(name, task, kind)
        if task not in TARGETS:
            return defaults
        return dataclasses.replace(defaults, target_return=TARGETS[task], return_scale=RETURN_SCALE)

    def budgeted(self, steps: int) -> Self:
        if self.warmup_steps is not None:
            return self
        return dataclasses.replace(self, warmup_steps=float(max(1, min(WARMUP, steps // 10))))

    def informed(self, dataset: Dataset) -> Self:
        returns = dataset.episode_returns
        largest = float(abs(returns).max()) or 1.0
        return dataclasses.replace(
            self,
            return_scale=largest if self.return_scale is None else self.return_scale,
            target_return=float(returns.max()) if self.target_return is None else self.target_return,
        )

    def init(self, key: Array, spec: Spec) -> DTState:
        net = DecisionTransformer.init(key, spec, self.horizon, self.blocks, self.dim, self.heads)
        return DTState(Learner.of(net), jnp.zeros((), jnp.int32))

    def update(self, state: DTState, batch: Windows, key: Array) -> tuple[DTState, Metrics]:
        scaled = batch.return_to_go / self.known("return_scale")

        def loss(net: DecisionTransformer) -> tuple[Array, Array]:
            predicted = net(scaled, batch.obs, batch.action, batch.time_step, self.dropout, key)
            error = jnp.mean(jnp.square(predicted - batch.action), axis=-1)
            value = jnp.sum(batch.mask * error) / jnp.sum(batch.mask)
            return value, value

        warmup = WARMUP if self.warmup_steps is None else self.warmup_steps
        rate = self.learning_rate * jnp.minimum((state.step + 1) / warmup, 1)
        actor, actor_loss = state.actor.descend(loss, rate, clip=self.gradient_clip, weight_decay=self.weight_decay)
        return DTState(actor, state.step + 1), {"actor_loss": actor_loss}

    def known(self, field: str) -> Array | float:
        """A number that training takes from the data unless it is given."""
        value: Array | float | None = getattr(self, field)
        if value is None:
            raise UniqError(f"{self.name}: {field} is not known before training has seen the data; give it a number.")
        return value

    def act(self, state: DTState, obs: Array, memory: Memory) -> tuple[Array, Memory]:
        net = state.actor.net
        past: Recall = self.nothing(obs, len(net.head.bias)) if memory is None else memory
        now = jnp.minimum(past.steps, self.window - 1)
        past = past._replace(
            return_to_go=appended(past.return_to_go, past.wanted, past.steps),
            obs=appended(past.obs, obs, past.steps),
            action=appended(past.action, jnp.zeros_like(past.action[:, 0]), past.steps),
        )
        time_step = (past.steps - now)[:, None] + jnp.arange(self.window)[None]
        scaled = past.return_to_go / self.known("return_scale")
        predicted = net(scaled, past.obs, past.action, time_step)
        action = jax.vmap(lambda steps, i: steps[i])(predicted, now)
        taken = jax.vmap(lambda steps, i, action: steps.at[i].set(action))(past.action, now, action)
        return action, past._replace(action=taken, steps=past.steps + 1)

    def nothing(self, obs: Array, action_dim: int) -> Recall:
        """What is remembered when episodes begin with these observations."""
        episodes, obs_dim = obs.shape
        return Recall(
            return_to_go=jnp.zeros((episodes, self.window)),
            obs=jnp.zeros((episodes, self.window, obs_dim)),
            action=jnp.zeros((episodes, self.window, action_dim)),
            steps=jnp.zeros(episodes, jnp.int32),
            wanted=jnp.full(episodes, self.known("target_return"), jnp.float32),
        )

    def rewarded(self, memory: Memory, reward: Array) -> Memory:
        return memory._replace(wanted=memory.wanted - reward)

    def deployed(self, state: DTState) -> DTState:
        return only(state, actor=state.actor.frozen())


def appended(past: Array, value: Array, steps: Array) -> Array:
    """`past` `[B, window, ...]` with one value more for each episode; once it is full, the oldest goes."""

    def of_episode(past: Array, value: Array, steps: Array) -> Array:
        window = len(past)
        shifted = jnp.where(steps < window, past, jnp.roll(past, -1, axis=0))
        return shifted.at[jnp.minimum(steps, window - 1)].set(value)

    return jax.vmap(of_episode)(past, value, steps)
