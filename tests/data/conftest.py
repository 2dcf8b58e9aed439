"""Fixtures of the data tests."""

from collections.abc import Callable
from pathlib import Path

import h5py
import pytest
from logged import Columns, chain


@pytest.fixture
def columns() -> Columns:
    return chain()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write columns to an HDF5 file; names may hold slashes."""

    def write_file(columns: Columns, name: str = "hopper_medium-v2.hdf5") -> Path:
        path = tmp_path / name
        with h5py.File(path, "w") as file:
            for key, value in columns.items():
                file[key] = value
        return path

    return write_file
