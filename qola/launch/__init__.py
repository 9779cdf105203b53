"""Proof without a GPU that a library's entry points launch kernels.

In: plan.json. Out: the C++ of a program that calls the library, and what its calls launch.
"""
