"""From a model's configuration in Hugging Face's format to a manifest, with the kernels it uses."""
