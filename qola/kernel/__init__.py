"""The config of a kernel of Composable Kernel, and the rules for configs."""
