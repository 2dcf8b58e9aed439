"""Data sets that need no download: made on first use from behaviour policies that ship with the library."""

from uniq_rl.suite.datasets import SUITE_VERSION, card, make, names, recipe_id

__all__ = ["SUITE_VERSION", "card", "make", "names", "recipe_id"]
