"""``kernelllm verify``: judges pairs of files side by side, in a pool of judging processes."""
