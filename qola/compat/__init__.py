"""What of an AITER tree can be built, found without a compiler: `qola.compat.run.examine`.

in: a directory; out: checks, each ok, degraded or broken.
"""
