"""Layers of Hugging Face transformers marked for pytest-kernelllm: classes that this project does not own.

Importing a module here marks the classes in it and changes nothing else about them.
"""
