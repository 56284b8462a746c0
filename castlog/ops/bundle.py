"""Bundles: a session with all branches and tags, as compressed lines."""
