"""A slow, obvious simulator of the same model as the compiled core, written from docs/MODEL.md alone."""
