import os

from hypothesis import settings

from unspool.io import cache_folder

# Tests that set UNSPOOL_CACHE need not compile every kernel again.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "kernels"))

# A deadline measures the machine and whoever else uses it, not the code.
settings.register_profile("project", deadline=None)
settings.load_profile("project")
