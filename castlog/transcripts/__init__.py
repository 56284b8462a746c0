"""Transcripts of other programs: found by content, taken in record by record, given back byte for byte.

`driver` is the doorway. It walks a folder (`walk`), finds each file's format (`detect`, `formats`) and its session
(`owners`, `parents`). `intake` takes one file: it is cut into records and gaps (`lines`, `split`, `resync`), compared
with what the store holds (`match`, `place`), and what is new is written (`write`). What a record *means* is the
business of one plug-in per format: `claude_code`, `codex`, `opaque`.
"""
