"""Files that are there whole or not at all, and the folder where files are kept to be found again."""
