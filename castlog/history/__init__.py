"""What append, seal, read and fork mean: timelines, references, open chunks.

Functions take a transaction, never open one.
"""
