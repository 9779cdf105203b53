"""Questions of users about a plan: list, explain, estimate.

in: a Plan; out: rows.
"""
