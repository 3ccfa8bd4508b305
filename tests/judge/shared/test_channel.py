import re
import socket
import struct
import threading

import pytest

from kernelllm_judge.shared.channel import MAX_MESSAGE, Channel, ChannelClosed, ChannelError, ChannelTimeout


@pytest.fixture
def ends():
    left, right = socket.socketpair()
    yield Channel(left), right
    left.close()
    right.close()


def test_objects_arrive_whole_and_in_order(ends):
    channel, other = ends
    far = Channel(other)
    for message in ({"a": [1, 2.5, None]}, {"text": "x" * 200_000}):
        sender = threading.Thread(target=far.send, args=(message,))
        sender.start()
        assert channel.receive(5.0) == message
        sender.join()


def test_silence_is_a_timeout(ends):
    channel, _ = ends
    with pytest.raises(ChannelTimeout):
        channel.receive(0.05)


def test_half_a_message_is_a_timeout_too(ends):
    channel, other = ends
    other.sendall(struct.pack("<I", 100) + b"{")
    with pytest.raises(ChannelTimeout):
        channel.receive(0.05)


def test_a_closed_end_is_noticed(ends):
    channel, other = ends
    other.close()
    with pytest.raises(ChannelClosed):
        channel.receive(1.0)


@pytest.mark.parametrize(
    "data",
    [
        b"junk of a candidate",
        struct.pack("<I", MAX_MESSAGE + 1),
        struct.pack("<I", 3) + b"\x80\x04N",
        struct.pack("<I", 2) + b"[]",
    ],
    ids=["a text", "too long", "a pickle", "not an object"],
)
def test_anything_but_a_json_object_is_refused(ends, data):
    channel, other = ends
    other.sendall(data)
    with pytest.raises(ChannelError, match=r"^something that is no message") as caught:
        channel.receive(1.0)
    assert not re.search(r"\d", str(caught.value)), "a number that nobody wrote"


def test_a_message_that_nests_without_end_is_an_error(ends):
    channel, other = ends
    body = b"[" * 200_000
    sender = threading.Thread(target=other.sendall, args=(struct.pack("<I", len(body)) + body,))
    sender.start()
    with pytest.raises(ChannelError, match="nested too deeply"):
        channel.receive(5.0)
    sender.join()
