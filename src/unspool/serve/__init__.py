"""Models over HTTP: one model that many requests share, and the API that they come through."""
