from pathlib import Path

from uniq_rl.data import Dataset


def draw_dataset(dataset: Dataset, path: Path) -> Path:
    return path
