"""`python -m unspool.cli` is the command `unspool`."""

import sys

from unspool.cli import main

sys.exit(main())
