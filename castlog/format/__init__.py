"""Bytes on disk and on the wire: pure functions between values and bytes. `FORMAT.md` beside this file is the layout.

Nothing here knows an engine, a clock or a store.
"""
