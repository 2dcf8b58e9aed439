"""Data of one's own: a mapping of arrays, or the same in an .npz file."""

import dataclasses
import difflib
import math
import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from uniq_rl.data import checks
from uniq_rl.data.bounds import ActionRange
from uniq_rl.data.checks import Array
from uniq_rl.data.dataset import Dataset
from uniq_rl.data.episodes import assemble
from uniq_rl.data.names import name_of_file, task_of
from uniq_rl.errors import UniqError

COLUMNS = {
    "obs": ("obs", "observations"),
    "action": ("action", "actions"),
    "reward": ("reward", "rewards"),
    "next_obs": ("next_obs", "next_observations"),
    "terminated": ("terminated", "terminals"),
    "truncated": ("truncated", "timeouts"),
    "mask": ("mask", "masks"),
    "episode_end": ("episode_end",),
}
INFOS = {
    "qpos": ("qpos", "infos/qpos"),
    "qvel": ("qvel", "infos/qvel"),
    "action_log_prob": ("action_log_prob", "infos/action_log_probs"),
}
EPISODE_COLUMNS = {key: COLUMNS[key] for key in ("obs", "action", "reward")} | {
    "terminated": (*COLUMNS["terminated"], "terminations"),  # Minari's names
    "truncated": (*COLUMNS["truncated"], "truncations"),
}
REQUIRED = ("obs", "action", "reward")
BOUNDS = ("action_low", "action_high")
"""Bounds of the actions as they are stored, one number per dimension: the actions are rescaled from them."""
ORIGINAL = ("original_action_low", "original_action_high")
"""Bounds the actions had before they were rescaled to [-1, 1], as `save_npz` stores them."""
NAMES = (*(name for aliases in (*COLUMNS.values(), *INFOS.values()) for name in aliases), *BOUNDS, *ORIGINAL)

MAX_COMPRESSION = 1100  # deflate cannot shrink data more than 1032 times: a larger ratio is a forged header
ALLOWANCE = 2**20


def from_arrays(
    arrays: Mapping[str, Any],
    name: str = "data",
    task: str | None = None,
    action_range: ActionRange = None,
) -> Dataset:
    """Build a data set from columns: obs, action, reward, terminated, truncated and, if recorded, next_obs.

    D4RL's names (observations, ..., terminals, timeouts) are understood as well, and so are `mask` (1 - terminated)
    and `episode_end` (terminated or truncated) in place of the two flags. Actions outside [-1, 1] need their bounds:
    `action_range` (a pair, or "data"), or the entries `action_low` and `action_high`; they are then rescaled.
    """
    return from_columns(arrays, source=name, name=name, task=task, action_range=action_range)


def from_episodes(
    episodes: Iterable[Mapping[str, Any]],
    name: str = "data",
    task: str | None = None,
    action_range: ActionRange = None,
) -> Dataset:
    """Build a data set from episodes, each a mapping with obs, action, reward, terminated and maybe truncated.

    `obs` has one row per action, or one more: the observation after the last action, as a Gymnasium loop collects it.
    Without it the last step of an episode that was cut off is left out, because nobody knows where it led. The flags
    are one value per step, or one for the whole episode; an episode that is not terminated was cut off.
    """
    parts = [_steps(episode, f"{name}: episode {index}") for index, episode in enumerate(episodes)]
    if not parts:
        raise UniqError(f"{name} holds no episode; give at least one.")
    columns = {}
    for key in parts[0]:
        widths = {part[key].shape[1:] for part in parts}
        if len(widths) > 1:
            raise UniqError(f"{name}: `{key}` has rows of different shapes in different episodes: {sorted(widths)}.")
        columns[key] = np.concatenate([part[key] for part in parts])
    return from_columns(columns, source=name, name=name, task=task, action_range=action_range)


def _steps(episode: Mapping[str, Any], where: str) -> dict[str, Array]:
    """The columns of one episode, next_obs included; only steps whose next observation is known."""
    if not isinstance(episode, Mapping):
        raise UniqError(f"{where} is a {type(episode).__name__} but must be a mapping of columns.")
    labels = _labels(episode, EPISODE_COLUMNS, where)
    for key in (*REQUIRED, "terminated"):
        if key not in labels:
            raise UniqError(f"{where} has no `{key}` (found: {checks.listed(sorted(map(str, episode)))}); add it.")
    raw = {key: checks.numeric(episode[label], f"{where}: `{label}`") for key, label in labels.items()}
    obs, action, reward = (np.atleast_1d(raw[key]) for key in REQUIRED)
    steps = len(reward)
    if steps == 0 or len(action) != steps or len(obs) - steps not in (0, 1):
        raise UniqError(
            f"{where} has {len(obs)} observations, {len(action)} actions and {steps} rewards; it needs as many actions "
            "as rewards, at least one, and as many observations or one more."
        )
    terminated = _last_flag(raw["terminated"], steps, f"{where}: `{labels['terminated']}`")
    if "truncated" in raw:
        _last_flag(raw["truncated"], steps, f"{where}: `{labels['truncated']}`")
    if len(obs) == steps:  # a terminated step's successor is masked, so any finite value will do
        obs = np.concatenate([obs, obs[-1:]])
        steps -= 0 if terminated else 1
    last = np.arange(steps) == steps - 1
    return {
        "obs": obs[:steps],
        "action": action[:steps],
        "reward": reward[:steps],
        "next_obs": obs[1 : steps + 1],
        "terminated": last & terminated,
        "truncated": last & (not terminated),
    }


def _last_flag(values: Array, steps: int, where: str) -> bool:
    """The flag of an episode's last step; set earlier, it would end the episode there."""
    flags = checks.flags(np.atleast_1d(values), where)
    if len(flags) not in (1, steps):
        raise UniqError(f"{where} has {len(flags)} values for {steps} steps; give one per step, or one in all.")
    if flags[:-1].any():
        raise UniqError(
            f"{where} is true at step {int(flags.argmax())} of {steps}; the episode ends there, so split it."
        )
    return bool(flags[-1])


def load_npz(
    path: str | os.PathLike[str],
    name: str | None = None,
    task: str | None = None,
    action_range: ActionRange = None,
) -> Dataset:
    """Read an .npz file with the columns of `from_arrays`."""
    path = Path(path)
    return from_columns(
        _read_npz(path),
        source=str(path),
        name=name or name_of_file(path),
        task=task or task_of(path.name),
        action_range=action_range,
    )


def save_npz(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write what `load_npz` reads back to the same fingerprint. Equal data give equal bytes: no dates inside.

    Not compressed: measured numbers shrink by a tenth, and deflating a million rows of them takes seconds.
    """
    columns = {key: getattr(dataset, key) for key in ("obs", "action", "reward", "next_obs", "mask", "episode_end")}
    columns |= {key: value for key, value in dataset.infos.items() if key in INFOS}
    if dataset.action_low is not None and dataset.action_high is not None:
        columns |= dict(zip(ORIGINAL, (dataset.action_low, dataset.action_high), strict=True))
    with zipfile.ZipFile(path, "w") as archive:
        for key, value in columns.items():
            member = zipfile.ZipInfo(f"{key}.npy")  # numpy.savez would stamp it with the time
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, value, allow_pickle=False)


def from_columns(
    arrays: Mapping[str, Any], *, source: str, name: str, task: str | None, action_range: ActionRange = None
) -> Dataset:
    """What `from_arrays` does, for loaders whose `source` is not the name of the data."""
    _check_names(arrays, source)
    labels = _labels(arrays, COLUMNS, source)
    for key in REQUIRED:
        if key not in labels:
            found = checks.listed(sorted(map(str, arrays)))
            raise UniqError(f"{source} has no column `{key}` (found: {found}); add it.")
    columns = {key: checks.numeric(arrays[label], f"{source}: column `{label}`") for key, label in labels.items()}
    checks.check_rows({labels[key]: np.atleast_1d(value) for key, value in columns.items()}, source)
    columns, labels = _with_flags(columns, labels, arrays, source)
    infos = {key: arrays[label] for key, label in _labels(arrays, INFOS, source).items()}
    for key, value in infos.items():
        if np.shape(value)[:1] != columns["obs"].shape[:1]:
            raise UniqError(f"{source}: column `{key}` has shape {np.shape(value)} but needs one entry per row.")
    dataset = assemble(
        columns,
        labels,
        source=source,
        name=name,
        task=task,
        infos=infos,
        end_at_jumps="truncated" not in columns,  # who marks the ends is believed; noise in next_obs is then no end
        how_to_mark="set `truncated` to true on the last row of each episode that was cut off",
        action_range=_range_of(arrays, action_range, source),
    )
    original = _pair(arrays, ORIGINAL, source)
    return dataclasses.replace(dataset, action_low=original[0], action_high=original[1]) if original else dataset


def _range_of(arrays: Mapping[str, Any], action_range: ActionRange, source: str) -> ActionRange:
    """The bounds to rescale from, which may be given once: by the caller, or beside the actions."""
    stored = _pair(arrays, BOUNDS, source)
    ways = [name for name, given in (("action_range", action_range), (BOUNDS[0], stored)) if given is not None]
    ways += [ORIGINAL[0]] if any(name in arrays for name in ORIGINAL) else []
    if len(ways) > 1:
        raise UniqError(f"{source}: the action range is given by both `{ways[0]}` and `{ways[1]}`; keep one of them.")
    return action_range if stored is None else stored


def _pair(arrays: Mapping[str, Any], names: tuple[str, str], source: str) -> tuple[Any, Any] | None:
    found = [name for name in names if name in arrays]
    if len(found) == 1:
        raise UniqError(f"{source} has only one of `{names[0]}` and `{names[1]}`; give both.")
    return (arrays[names[0]], arrays[names[1]]) if found else None


def _check_names(arrays: Mapping[str, Any], source: str) -> None:
    """A misspelt column would otherwise be ignored in silence. Columns of other names are the user's own affair."""
    for label in arrays:
        close = difflib.get_close_matches(str(label), NAMES, n=1, cutoff=0.85)
        if label not in NAMES and close:
            shown = checks.printable(label)
            raise UniqError(f"{source}: column `{shown}` is unknown; rename it to `{close[0]}` if that is meant.")


def _labels(arrays: Mapping[str, Any], known: Mapping[str, tuple[str, ...]], source: str) -> dict[str, str]:
    """Canonical name -> the name used in this source."""
    labels = {}
    for key, aliases in known.items():
        used = [alias for alias in aliases if alias in arrays]
        if len(used) > 1:
            raise UniqError(f"{source} has both `{used[0]}` and `{used[1]}`, which mean the same; keep one of them.")
        if used:
            labels[key] = used[0]
    return labels


def _with_flags(
    columns: dict[str, Array], labels: dict[str, str], arrays: Iterable[str], source: str
) -> tuple[dict[str, Array], dict[str, str]]:
    """Bring `mask` and `episode_end`, where given, into the form of `terminated` and `truncated`."""
    columns, labels = dict(columns), dict(labels)
    for key, other in (("mask", "terminated"), ("episode_end", "truncated")):
        if key in columns and other in columns:
            raise UniqError(
                f"{source} has both `{labels[key]}` and `{labels[other]}`, which say the same in two ways; keep one."
            )
    if "mask" in columns:
        label = labels["terminated"] = labels.pop("mask")
        columns["terminated"] = ~checks.flags(columns.pop("mask"), f"{source}: column `{label}`")
    if "terminated" not in columns:
        ambiguous = next((name for name in ("done", "dones") if name in arrays), None)
        if ambiguous:
            raise UniqError(
                f"{source}: `{ambiguous}` does not say whether the task ended or the episode was cut off; store "
                "`terminated` and `truncated` instead."
            )
        missing = "neither a `terminated` nor a `truncated`" if "truncated" not in columns else "no `terminated`"
        raise UniqError(
            f"{source} has {missing} column; add `terminated` (the task ended; all false if it never does) and "
            "`truncated` (true on the last row of an episode that was cut off)."
        )
    if "episode_end" in columns:  # ends that are terminated as well do no harm: terminated wins
        labels["truncated"] = labels.pop("episode_end")
        columns["truncated"] = columns.pop("episode_end")
    return columns, labels


def _read_npz(path: Path) -> dict[str, Any]:
    """The known columns of the file. Nothing is unpickled, and nothing is allocated on the word of a header alone."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            # Names alone for the columns nobody asked for, so that messages can speak of them.
            found: dict[str, Any] = dict.fromkeys(members)
            for label, member in members.items():
                if label in NAMES:
                    found[label] = _read_member(archive, member, path)
            return found
    except UniqError:
        raise
    except Exception as error:  # zipfile, zlib, tokenize and NumPy each have their own ways to fail on foreign bytes
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> UniqError:
    reason = " ".join(str(error).split())
    return UniqError(
        f"{path} cannot be read as .npz: it is damaged, cut short or of another format ({reason}); write it again "
        "with numpy.savez."
    )


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> Array:
    where = f"{path}: column `{member.filename.removesuffix('.npy')}`"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UniqError(f"{where} is compressed in a way NumPy never does; write it again with numpy.savez.")
    stored = min(member.compress_size, path.stat().st_size)
    with archive.open(member) as file:
        shape, dtype, header = _read_header(file, where)
    if dtype.hasobject:
        raise UniqError(f"{where} holds pickled Python objects, which are never loaded; store plain numbers instead.")
    declared = math.prod(shape) * dtype.itemsize
    if header + declared != member.file_size or member.file_size > MAX_COMPRESSION * stored + ALLOWANCE:
        raise UniqError(
            f"{where} declares {declared} bytes but the file does not hold them; it is damaged, so write it again "
            "with numpy.savez."
        )
    with archive.open(member) as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


def _read_header(file: IO[bytes], where: str) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, type and length of the header in bytes."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise UniqError(f"{where} is no plain array of numbers (.npy version {version}); write it with numpy.savez.")
    shape, _, dtype = readers[version](file)
    return shape, dtype, file.tell()
