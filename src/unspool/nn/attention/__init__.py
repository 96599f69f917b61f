"""Attention: who listens to whom."""
