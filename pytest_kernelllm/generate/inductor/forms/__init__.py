"""Special forms of kernels that TorchInductor does not write by itself, a file for each, found by name in ``registry``."""
