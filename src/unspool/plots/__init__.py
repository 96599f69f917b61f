"""Every figure of the library, drawn with matplotlib, which is imported when a figure is drawn."""
