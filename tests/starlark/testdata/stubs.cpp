// Stands for the kernel instances in the lazy library; never compiled.
