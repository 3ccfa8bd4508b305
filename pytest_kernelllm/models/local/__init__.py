"""A language model on this machine, run by transformers.

``load`` finds and loads it, ``memory`` says whether it fits, ``decode`` writes many samples at once, ``model`` is the
``LanguageModel``. Nothing here imports torch before it has to.
"""
