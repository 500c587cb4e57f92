import pytest
from process_group import Ranks


@pytest.fixture(scope="session")
def ranks():
    """Two ranks, the same for all tests that leave their group as it is."""
    both = Ranks()
    yield both
    both.end()


@pytest.fixture(scope="session")
def three():
    """As `ranks`, three of them."""
    group = Ranks(3)
    yield group
    group.end()
