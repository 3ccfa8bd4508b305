"""A language model on this machine, run by transformers.

``files`` finds or downloads it, ``load`` loads it if it fits, ``decode`` writes many samples at once, and
``model`` is the ``LanguageModel``. PyTorch is imported only when the model is used.
"""
