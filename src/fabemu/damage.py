"""Tables that are not as they were written: what of them can be read, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as ipc


@contextmanager
def undamaged(path: Path, kind: type[Exception]) -> Iterator[None]:
    """Context in which what Arrow cannot make sense of is said to be damage of this table, by an error of this kind."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise kind(f"{path}: the file is damaged ({reason}); run the scenario again") from error


def whole_batches(reader: ipc.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    """Batches up to the first incomplete one, the cut."""
    while True:
        try:
            batch = reader.read_next_batch()
            batch.validate()
        except (StopIteration, pa.ArrowInvalid, OSError):
            return
        yield batch
