"""Settings for the property tests of this room."""

from hypothesis import settings

# A machine with other work to do is slow at times; what a test may take as a whole is the runner's matter.
settings.register_profile("castlog", deadline=None)
settings.load_profile("castlog")
