"""Splits libraries into a host part and a pack of device code per arch: docs/guide/bundle.md."""
