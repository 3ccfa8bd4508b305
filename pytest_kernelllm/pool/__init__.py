"""The pool of judging processes, in which ``pytest --kernelllm``, ``bench`` and ``verify`` judge."""
