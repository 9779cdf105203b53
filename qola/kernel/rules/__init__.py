"""Rules for kernel configs."""
