"""Measures of what was generated."""
