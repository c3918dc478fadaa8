"""What a run wrote, in the formats of other tools: captures, timelines, CSV, the files of HPCC simulators."""

from fabemu.export.capture import Capture, export_pcapng
from fabemu.export.hpcc import HpccFiles, export_hpcc
from fabemu.export.table_csv import export_csv
from fabemu.export.timeline import Timeline, export_perfetto

__all__ = ["Capture", "HpccFiles", "Timeline", "export_csv", "export_hpcc", "export_pcapng", "export_perfetto"]
