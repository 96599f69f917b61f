"""The page at `/`: what it shows, and the routes that it asks."""
