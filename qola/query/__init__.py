"""Questions about a plan: its kernels (list, explain) and its cost (estimate).

in: a Plan; out: rows.
"""
