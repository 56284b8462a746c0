"""Walks over a store: revisions, differences, search, integrity, use of space, and ways in and out."""
