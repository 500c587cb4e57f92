import pytest
from process_group import Ranks


@pytest.fixture(scope="session")
def ranks():
    """Two ranks, the same for all tests that leave their group as it is."""
    both = Ranks()
    yield both
    both.end()
