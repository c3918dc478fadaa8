"""Readers of other tools' files, each of which writes a fabemu scenario."""
