"""The plan of a manifest, down to the last file and flag."""
