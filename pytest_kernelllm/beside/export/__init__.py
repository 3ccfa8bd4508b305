"""Exports kernels in the layout of Hugging Face's ``kernels`` library, with guards for their verified domain."""
