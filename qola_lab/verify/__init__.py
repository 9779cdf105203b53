"""Verification of kernels: problems for each kernel instance, and a comparison with float64.

In: a plan, the text of a dispatch, a kernel's results. Out: problems, tensors, verdicts.
"""
