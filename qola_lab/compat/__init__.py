"""What of an AITER tree can be built, found without a compiler: `qola_lab.compat.run.examine`.

in: a directory; out: checks, each ok, degraded or broken.
"""
