"""The ``inductor`` generator: TorchInductor's Triton for every case of a target, on any machine."""
