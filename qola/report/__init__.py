"""A report of a build: one HTML page, and the same as JSON.

in: a Plan, built libraries, Bazel's execution log; out: kernels, their resources, compile times.
"""
