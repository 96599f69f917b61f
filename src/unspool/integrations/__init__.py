"""Bridges to other libraries. Each needs its own extra and says so when that is missing."""
