"""The web page at `/`: next-token distributions, beams, attention, ratings and lab results."""
