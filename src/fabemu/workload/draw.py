"""Random draws of one workload, keyed so that nothing else in a scenario can change them."""

from __future__ import annotations

import hashlib

import numpy as np


class Draw:
    """One stream of uniform draws.

    The key is (scenario seed, label, occurrence, purpose): the same key gives the same draws, whatever other workloads
    there are. Only the raw output of PCG64 is used; numpy promises that it never changes, which it does not for its
    distributions.
    """

    def __init__(self, seed: int, label: str, occurrence: int, purpose: str) -> None:
        """Open the stream.

        Parameters
        ----------
        seed
            Seed of the scenario, 0 or more.
        label
            Label of the workload.
        occurrence
            Number of workloads with the same label before this one.
        purpose
            What the draws decide; streams of one workload differ in it.
        """
        digest = hashlib.sha256(f"{purpose}\0{label}".encode()).digest()
        words = np.frombuffer(digest, dtype="<u4").tolist()
        self._bits = np.random.PCG64(np.random.SeedSequence(entropy=seed, spawn_key=(*words, occurrence)))

    def uniform(self, count: int) -> np.ndarray:
        """Draw uniformly from [0, 1): (count,) float64, multiples of 2**-53."""
        return (self._bits.random_raw(count) >> np.uint64(11)) * 2.0**-53

    def integers(self, limit: int | np.ndarray, count: int) -> np.ndarray:
        """Draw uniformly from 0 .. limit - 1: (count,) int64. `limit` is at most 2**31; it may differ by draw."""
        return (self.uniform(count) * limit).astype(np.int64)

    def permutation(self, count: int) -> np.ndarray:
        """Draw an order of 0 .. count - 1: (count,) int64."""
        return np.argsort(self._bits.random_raw(count), kind="stable").astype(np.int64)

    def gaps_ps(self, mean_ps: float, count: int) -> np.ndarray:
        """Draw exponential gaps: (count,) int64, rounded to whole picoseconds."""
        # A sum of whole numbers does not depend on how the draws are cut into blocks.
        return np.rint(-np.log1p(-self.uniform(count)) * mean_ps).astype(np.int64)
