"""A language model on this machine, run by transformers.

``files`` finds it and says whether it fits, ``load`` loads it, ``decode`` writes many samples at once, ``model`` is the
``LanguageModel``. Nothing here imports torch before it has to.
"""
