"""The report of a run: one HTML file that needs nothing else, and the answer in sentences."""

from __future__ import annotations

from fabemu.page.answers import Answer, answer
from fabemu.page.assembly import document, write_page

__all__ = ["Answer", "answer", "document", "write_page"]
