"""Runs CK's and AITER's own generators, unmodified, each in a process of its own.

From a tree, a module's configuration and a Selection they make a KernelSet.
"""
