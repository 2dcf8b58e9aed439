"""Offline reinforcement learning that knows where it is uncertain."""

__version__ = "0.1.0"
