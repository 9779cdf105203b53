"""The generated repositories of Bazel, from plans alone.

in: plans; out: BUILD files and the files beside them.
"""
