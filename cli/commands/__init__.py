"""One file per command. Each declares its options, calls castlog, and hands the result to `Out`."""
