"""Questions about a plan (list, explain, estimate), and the modules that servers need.

in: a Plan, or AITER's Python; out: rows, or a manifest.
"""
