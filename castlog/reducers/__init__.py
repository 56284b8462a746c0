"""Reducers that come with castlog. They read events and build states; of stores and handles they know nothing."""
