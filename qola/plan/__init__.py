"""The plan of a manifest, down to the last file and flag.

in: a Request; out: a Plan, and the sources it names.
"""
