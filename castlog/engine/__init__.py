"""A dumb ordered map of bytes to bytes with transactions: the contract in `base`, one engine a file.

Nothing here knows what the bytes mean. Only `disk` knows LMDB.
"""
