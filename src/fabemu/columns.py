"""Columns between NumPy and Arrow, buffer by buffer.

`pyarrow.array` imports pandas wherever that is installed, and the methods of Arrow arrays import `pyarrow.compute`:
each takes longer than all else that a small run does. What a trace needs is less: numbers, truth values and names.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def number_array(values: np.ndarray, kind: pa.DataType, null: np.ndarray | None = None) -> pa.Array:
    """Numbers or truth values as an Arrow array.

    Parameters
    ----------
    values
        (n,) numbers, taken over without a copy if they have the type already; values that do not fit are cut off as C
        does.
    kind
        An integer, a floating-point or the boolean type.
    null
        (n,) bool, which values are not there.
    """
    if pa.types.is_boolean(kind):
        data = np.packbits(values.astype(np.bool_, copy=False), bitorder="little")
    else:
        data = np.ascontiguousarray(values, dtype=kind.to_pandas_dtype())
    validity = None
    if null is not None and null.any():
        validity = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(data)])


def described_schema(*columns: tuple[str, pa.DataType, str]) -> pa.Schema:
    """Schema of a table of results: name, type and meaning of every column, the meaning as metadata of its field."""
    return pa.schema([pa.field(name, kind, metadata={"meaning": meaning}) for name, kind, meaning in columns])


def text_array(values: Sequence[str]) -> pa.Array:
    """Strings as an Arrow array without nulls."""
    encoded = [value.encode() for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def number_values(array: pa.Array, missing: float = 0) -> np.ndarray:
    """Values of an Arrow array of numbers or truth values.

    Parameters
    ----------
    array
        Of an integer, a floating-point or the boolean type.
    missing
        What stands for null.

    Returns
    -------
    numpy.ndarray
        (n,) of the array's own type; a view of its memory if that is possible.
    """
    validity, data = array.buffers()
    first, count = array.offset, len(array)
    if count == 0:
        return np.empty(0, array.type.to_pandas_dtype())
    values: np.ndarray
    if pa.types.is_boolean(array.type):
        values = _bits(data, first, count)
    else:
        values = np.frombuffer(data, array.type.to_pandas_dtype(), count=first + count)[first:]
    if validity is None or array.null_count == 0:
        return values
    return np.where(_bits(validity, first, count), values, values.dtype.type(missing))


def _bits(buffer: pa.Buffer, first: int, count: int) -> np.ndarray:
    """(count,) bool from a bit on."""
    packed = np.frombuffer(buffer, np.uint8, count=(first + count + 7) // 8)
    return np.unpackbits(packed, bitorder="little")[first : first + count].astype(np.bool_)
