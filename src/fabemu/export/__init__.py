"""What a run wrote, in the formats of other tools: captures, timelines, CSV, the files of HPCC simulators."""

from fabemu.export.capture import Capture, export_pcapng

__all__ = ["Capture", "export_pcapng"]
