"""The public name of the laboratory's package qola_lab.fmha (docs/guide/python.md)."""

import importlib
import sys

sys.modules[__name__] = importlib.import_module("qola_lab.fmha")
