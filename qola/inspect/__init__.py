"""What users ask of a plan: list, explain, estimate.

in: a Plan; out: rows.
"""
