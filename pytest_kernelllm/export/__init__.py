"""Kernels in the layout of Hugging Face's ``kernels`` library, with what keeps them inside their verified domain."""
