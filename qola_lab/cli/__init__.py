"""The laboratory's commands; qola.cli loads them by name.

in: arguments; out: text and an exit code.
"""
