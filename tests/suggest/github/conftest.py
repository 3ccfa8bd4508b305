import pytest
from world import World


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.hosting.close()
