"""What an export carries along: these files and parts of the runtime, imports apart byte for byte.

They import torch and the standard library only, so that an export needs nothing of this package.
"""
