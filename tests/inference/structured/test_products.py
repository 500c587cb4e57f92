"""Against plain formulas, and gradients against finite differences."""

import pytest
import torch
from torch.autograd import gradcheck

from skdgp.inference.structured.products import bilinear, forms, small_cholesky, substitute, whiten
from skdgp.linalg import workspace


@pytest.fixture
def randn(generator):
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


def lower(L):
    """A matrix in the two first axes, with zeros above the diagonal."""
    return L.movedim((0, 1), (-2, -1)).tril().movedim((-2, -1), (0, 1))


def same_gradients(f, g, inputs, weights):
    """Whether two functions have the same gradients; those of the first can be asked for once."""
    a, b = (torch.autograd.grad((h(*inputs) * weights).sum(), inputs) for h in (f, g))
    for one, other in zip(a, b):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("s", [1, 3])
def test_forms(randn, s):
    def plain(A, m, Q):
        return torch.einsum("msn,md->dsn", A, m), torch.einsum("msn,qmk,ksn->qsn", A, Q, A)

    A, m, Q = randn(4, s, 5).requires_grad_(), randn(4, 3).requires_grad_(), randn(2, 4, 4)
    Q = (Q + Q.mT).requires_grad_()
    expected = plain(A, m, Q)
    torch.testing.assert_close(forms(A, m, Q), expected)
    with torch.no_grad():
        torch.testing.assert_close(forms(A, m, Q), tuple(part.detach() for part in expected))
    together = lambda f: lambda *inputs: torch.cat(f(*inputs))  # noqa: E731
    with workspace():
        same_gradients(together(forms), together(plain), (A, m, Q), randn(5, s, 5))


@pytest.mark.parametrize("s", [1, 3])
def test_bilinear(randn, s):
    A, B, T = randn(4, 3, 5), randn(4, s, 5), randn(2, 1, 2, 4, 4)
    inputs = [part.requires_grad_() for part in (A, B, T)]
    expected = torch.einsum("msn,abcmk,ksn->abcsn", A, T, B.expand(4, 3, 5))
    torch.testing.assert_close(bilinear(*inputs), expected)
    with torch.no_grad():
        torch.testing.assert_close(bilinear(*inputs), expected.detach())
    with workspace():
        same_gradients(
            bilinear,
            lambda A, B, T: torch.einsum("msn,abcmk,ksn->abcsn", A, T, B.expand(4, 3, 5)),
            inputs,
            randn(2, 1, 2, 3, 5),
        )


def test_whiten(randn):
    K, root = randn(4, 6).requires_grad_(), randn(4, 4).requires_grad_()

    def whitened(root, K):
        return whiten(root @ root.T + torch.eye(4), K, 0.1)

    L = torch.linalg.cholesky(root @ root.T + 1.1 * torch.eye(4))
    expected = torch.linalg.solve_triangular(L, K, upper=False)
    torch.testing.assert_close(whitened(root, K), expected)
    assert gradcheck(whitened, (root, K))


def test_substitute(randn):
    Lam = (lower(randn(3, 3, 2, 4)) + 2.0 * torch.eye(3)[..., None, None]).requires_grad_()
    c = randn(3, 2, 2, 4).requires_grad_()
    y = substitute(Lam, c)
    torch.testing.assert_close(torch.einsum("klwn,luwn->kuwn", Lam, y), c)
    assert gradcheck(lambda Lam, c: substitute(lower(Lam), c), (Lam, c))


def test_small_cholesky(randn):
    root, floor = randn(3, 3, 5).requires_grad_(), torch.tensor(1e-12)

    def factor(root):
        return small_cholesky(
            torch.einsum("ikn,jkn->ijn", root, root) + torch.eye(3)[..., None], floor
        )

    R = factor(root)
    expected = torch.linalg.cholesky(
        (torch.einsum("ikn,jkn->ijn", root, root) + torch.eye(3)[..., None]).permute(2, 0, 1)
    )
    torch.testing.assert_close(R.permute(2, 0, 1), expected)
    assert gradcheck(factor, root)


def test_pivots_below_the_floor_are_raised(randn):
    E = torch.ones(2, 2, 1, dtype=torch.float64).requires_grad_()  # the second pivot is zero
    R = small_cholesky(E, torch.tensor(0.25))
    torch.testing.assert_close(R[..., 0], torch.tensor([[1.0, 0.0], [1.0, 0.5]]).double())
    R[1, 1].sum().backward()
    assert E.grad[1, 1] == 0.0
