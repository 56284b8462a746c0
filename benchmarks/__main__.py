"""Run benchmarks: `python -m benchmarks [VERB...]`."""

import sys

from benchmarks.command import main

sys.exit(main(sys.argv[1:]))
