"""`python -m unspool` is the command `unspool`: what torchrun starts."""

import sys

from unspool.cli import main

sys.exit(main())
