"""Flow-size distributions: a cumulative probability given at points, linear between them.

The text format is that of the generators of public simulators: two columns, bytes and cumulative probability, in
percent (the last value is 100) or as a fraction (the last value is 1). A repeated size is a step: that size has a
probability of its own. So is a first point with a probability above 0.
"""

from __future__ import annotations

import csv
import difflib
import math
from importlib import resources
from pathlib import Path

import numpy as np

from fabemu.deferred import dataclass
from fabemu.errors import InputError

BUILTIN = {
    "WebSearch": "web_search.csv",
    "Hadoop": "hadoop.csv",
    "AliStorage2019": "ali_storage_2019.csv",
    "GoogleRPC2008": "google_rpc_2008.csv",
    "Solar2022": "solar_2022.csv",
    "CacheFollower": "cache_follower.csv",
    "DataMining": "data_mining.csv",
    "WebServer": "web_server.csv",
}
"""Names of the distributions that come with the package, and their tables in ``fabemu/data/cdf``."""

ALIASES = {
    "FbHdp": "Hadoop",
    "FbHadoop": "Hadoop",
    "AliStorage": "AliStorage2019",
    "GoogleRPC": "GoogleRPC2008",
    "Solar": "Solar2022",
}
"""Other names under which the same tables are known."""

MAX_BYTES = 10**15
"""Largest size in a distribution; above it a double no longer holds every whole byte with room to spare."""


@dataclass(frozen=True, eq=False)
class SizeDistribution:
    """A piecewise-linear cumulative distribution of flow sizes.

    Attributes
    ----------
    name
        Where it came from: a built-in name or a path.
    size_bytes
        (n,) float64, bytes, not decreasing.
    cumulative
        (n,) float64, cumulative probability as a fraction, not decreasing, the last one is 1.
    """

    name: str
    size_bytes: np.ndarray
    cumulative: np.ndarray

    @property
    def mean_bytes(self) -> float:
        """Exact mean of the piecewise-linear distribution, in bytes."""
        # A first point above probability 0 is a step at the first size.
        total = self.cumulative[0] * self.size_bytes[0]
        return float(total + np.sum(np.diff(self.cumulative) * (self.size_bytes[1:] + self.size_bytes[:-1]) / 2))

    @property
    def max_bytes(self) -> int:
        """Largest size that can be drawn, in bytes."""
        return int(np.rint(self.size_bytes[-1]))

    def sample(self, uniform: np.ndarray) -> np.ndarray:
        """Turn uniform draws into sizes by inversion.

        Parameters
        ----------
        uniform
            (n,) float64 in [0, 1).

        Returns
        -------
        numpy.ndarray
            (n,) int64, bytes, rounded to the nearest whole byte, at least 1.
        """
        # The first point strictly above the draw ends the piece; a piece with no height is never met.
        upper = np.searchsorted(self.cumulative, uniform, side="right")
        upper = np.minimum(upper, len(self.cumulative) - 1)
        lower = np.maximum(upper - 1, 0)
        height = self.cumulative[upper] - self.cumulative[lower]
        share = np.divide(uniform - self.cumulative[lower], height, out=np.zeros(len(uniform)), where=height > 0)
        share = np.clip(share, 0.0, 1.0)  # below the first point `lower` is `upper`, and the share 0
        size = self.size_bytes[lower] + share * (self.size_bytes[upper] - self.size_bytes[lower])
        return np.maximum(np.rint(size).astype(np.int64), 1)


def size_distribution(sizes: str, base_dir: Path) -> SizeDistribution:
    """Find a distribution by built-in name or by path.

    Parameters
    ----------
    sizes
        A name of ``BUILTIN`` or ``ALIASES``, in any case, or the path of a file, relative to ``base_dir``.
        It is taken for a path if it has a ``/`` or a suffix, or if it is no known name and such a file exists.

    Raises
    ------
    InputError
        No such name or file, or the file is not a distribution.
    """
    known = {name.lower(): name for name in BUILTIN} | {alias.lower(): name for alias, name in ALIASES.items()}
    name = known.get(sizes.lower())
    if name is not None:
        return builtin_distribution(name)
    path = base_dir / sizes
    if "/" in sizes or path.suffix or path.exists():
        return read_distribution(path)
    near = difflib.get_close_matches(sizes.lower(), known, n=1)
    hint = f"; did you mean {known[near[0]]!r}?" if near else ""
    raise InputError(f"no size distribution {sizes!r}: it is neither a file nor one of {', '.join(BUILTIN)}{hint}")


def builtin_distribution(name: str) -> SizeDistribution:
    """Read one of the tables that come with the package.

    Parameters
    ----------
    name
        A key of ``BUILTIN``.
    """
    table = resources.files("fabemu") / "data" / "cdf" / BUILTIN[name]
    return parse_distribution(table.read_text(encoding="utf-8"), name)


def read_distribution(path: Path) -> SizeDistribution:
    """Read a distribution from a text file.

    Raises
    ------
    InputError
        The file cannot be read or is not a distribution; the message names the file, the line and the values.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a regular file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: invalid UTF-8 at byte {error.start}") from None
    return parse_distribution(text, str(path))


def parse_distribution(text: str, source: str) -> SizeDistribution:
    """Parse the points of a distribution.

    Two columns separated by blanks, tabs or commas. Lines that start with ``#`` are comments, the first other line may
    be a header, and prose after the last point is ignored.

    Parameters
    ----------
    source
        What error messages call the text: its path or name.

    Raises
    ------
    InputError
        Too few points, values that are out of range or not increasing, or a scale that is neither percent nor fraction.
    """
    lines: list[int] = []
    points: list[tuple[float, float]] = []
    header_seen = prose_line = 0
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip().lstrip("\ufeff")
        if not line or line.startswith("#"):
            continue
        point = _point(line)
        if point is None:
            if not points and not header_seen and not line[0].isdigit():
                header_seen = number
                continue
            if points and not prose_line and not line[0].isdigit():
                prose_line = number
            if prose_line:
                continue
            raise InputError(f"{source}:{number}: {_clip(line)} is not a point; write two numbers: bytes probability")
        if prose_line:
            raise InputError(
                f"{source}:{prose_line}: text between the points: another point follows in line {number}; "
                "put comments behind #"
            )
        size, y = point
        if not 0 <= size <= MAX_BYTES:
            raise InputError(f"{source}:{number}: size {size:g} is out of range; allowed are 0 to {MAX_BYTES:g} bytes")
        if not 0 <= y <= 100:
            raise InputError(f"{source}:{number}: probability {y:g} is out of range; allowed are 0 to 1, or 0 to 100 %")
        if points and (size < points[-1][0] or y < points[-1][1]):
            raise InputError(
                f"{source}:{number}: not monotone: {size:g} bytes, probability {y:g} after "
                f"{points[-1][0]:g} bytes, probability {points[-1][1]:g} in line {lines[-1]}"
            )
        points.append(point)
        lines.append(number)
    if not points:
        raise InputError(f"{source}: no points; write lines of two numbers: bytes probability")
    last = points[-1][1]
    if last not in (1, 100):
        raise InputError(
            f"{source}:{lines[-1]}: the last probability is {last:g}; it must be 1 (fractions) or 100 (percent)"
        )
    size_bytes = np.array([size for size, _ in points])
    # Division, unlike multiplication by 0.01, gives the double nearest to the written figure.
    cumulative = np.array([y for _, y in points]) / last
    size_bytes.flags.writeable = cumulative.flags.writeable = False
    distribution = SizeDistribution(source, size_bytes, cumulative)
    if not distribution.mean_bytes > 0:
        raise InputError(f"{source}:{lines[-1]}: all flows would have 0 bytes; a distribution needs sizes above 0")
    return distribution


def _point(line: str) -> tuple[float, float] | None:
    """Read two finite numbers, or None if the line is something else."""
    columns = next(csv.reader([line])) if "," in line else line.split()
    if len(columns) != 2:
        return None
    try:
        size, y = float(columns[0]), float(columns[1])
    except ValueError:
        return None
    return (size, y) if math.isfinite(size) and math.isfinite(y) else None


def _clip(line: str) -> str:
    """Quote a line of a file for a message, shortened."""
    return repr(line if len(line) <= 60 else line[:57] + "...")
