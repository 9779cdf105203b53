"""Rules of kernels, by what they are about."""
