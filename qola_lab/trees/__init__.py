"""AITER trees: their libraries and kernels, found without a manifest.

in: directories; out: checks of what can be built, without a compiler (`qola_lab.trees.examine`);
code objects with resources, occupancy and proven faults (`code_objects`), and with emulated
verdicts (`emulate`); differences between trees, a page and JSON (`qola_lab.trees.report`).
"""
