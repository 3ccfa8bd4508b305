"""Regions of a model's graph: cut out, written as modules, and run by kernels inside ``torch.compile``."""
