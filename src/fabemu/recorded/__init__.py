"""A run directory read again: its plan, and what its numbers stand for."""
