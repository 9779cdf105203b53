"""qola: one TOML manifest in, the AMD GPU attention libraries a framework needs out."""

__version__ = "0.1.0"
