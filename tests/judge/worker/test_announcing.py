"""Compilations are announced to the judge: each once, also those that fail; those of other threads where these are waited for."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import triton
import triton.language as tl

from kernelllm_judge.shared.channel import COMPILING, Channel, ChannelClosed
from kernelllm_judge.worker.absent_gpu import NotCompiled, compile_only
from kernelllm_judge.worker.announcing import Announcer


@triton.jit
def doubled(x_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets))


@triton.jit
def missing(x_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(x_ptr + offsets, tl.no_such_function(offsets))


def announced():
    """What the judge is told, in a process of its own, as the tests run in Triton's interpreter."""
    ours, theirs = map(Channel, socket.socketpair())
    heard = []

    def judge():
        try:
            while True:
                heard.append(ours.receive()[COMPILING])
                if not heard[-1]:
                    ours.send({"op": "continue"})
        except ChannelClosed:
            return

    x = torch.zeros(16)
    with ThreadPoolExecutor(1) as thread, ThreadPoolExecutor(1) as another, compile_only("sm_90"):
        listening = thread.submit(judge)
        announcer = Announcer(theirs)
        doubled[(1,)](x, N=16)
        doubled[(1,)](x, N=16)  # is compiled already
        try:
            missing[(1,)](x, N=16)
        except NotCompiled:
            heard.append("failed")
        another.submit(lambda: doubled[(1,)](x, N=8)).result()
        heard.append("waits")
        with announcer.waiting():
            another.submit(lambda: doubled[(1,)](x, N=4)).result()
        another.submit(lambda: doubled[(1,)](x, N=2)).result()
        theirs.close()
        listening.result()
    return heard


def test_each_compilation_is_announced_and_its_end_waits_for_the_judge():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, env=environment, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [True, False, True, False, "failed", "waits", True, False]


if __name__ == "__main__":
    print(json.dumps(announced()))
