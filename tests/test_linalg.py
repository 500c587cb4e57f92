import threading
import warnings

import numpy as np
import pytest
import torch

from skdgp.linalg import (
    LogNormal,
    Whitened,
    add_diagonal,
    cholesky,
    current_workspace,
    gram,
    inverse_triangular,
    packed,
    root_of_inverse,
    symmetric_products,
    triangular_product,
    unpacked,
    workspace,
)


def random_spd(*shape, seed=0):
    A = np.random.default_rng(seed).standard_normal(shape)
    return torch.as_tensor(A @ A.swapaxes(-1, -2) + 0.1 * np.eye(shape[-1]))


def with_smallest_eigenvalue(value, n=4):
    """A symmetric matrix with eigenvalues value, 1, 2, ..."""
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((n, n)))[0]
    eigenvalues = np.concatenate([[value], np.arange(1.0, n)])
    return torch.as_tensor((Q * eigenvalues) @ Q.T)


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 5, 5), (2, 3, 4, 4)])
def test_cholesky_is_a_lower_factor_of_the_jittered_matrix(shape):
    K = random_spd(*shape)
    before = K.clone()
    L = cholesky(K, 0.01)
    torch.testing.assert_close(
        L @ L.mT, K + 0.01 * torch.eye(shape[-1]).double(), rtol=1e-13, atol=1e-13
    )
    assert torch.equal(L, L.tril())
    assert torch.equal(K, before)


@pytest.mark.parametrize(
    ("smallest", "factor"), [(1e-3, 1.0), (-5e-6, 10.0), (-5e-5, 100.0), (-5e-4, 1000.0)]
)
def test_cholesky_raises_the_jitter_no_further_than_needed(smallest, factor):
    K = with_smallest_eigenvalue(smallest)
    L = cholesky(K, 1e-6)
    added = torch.diagonal(L @ L.mT - K)
    torch.testing.assert_close(added, torch.full((4,), factor * 1e-6).double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("smallest", "part"), [(-5e-14, 1e-13), (-5e-13, 1e-12), (-5e-12, 1e-11)])
def test_cholesky_allows_for_the_rounding_of_large_numbers(smallest, part):
    size, small = 1e12, with_smallest_eigenvalue(0.0)
    small += smallest * torch.diagonal(small).max() * torch.eye(4)
    L = cholesky(size * small, 1e-10)
    added = torch.diagonal(L @ L.mT - size * small) / (size * torch.diagonal(small).max())
    torch.testing.assert_close(added, torch.full((4,), part).double(), rtol=1e-2, atol=0)


def test_matrices_of_a_batch_have_jitter_of_their_own():
    K = torch.stack([with_smallest_eigenvalue(value) for value in (-5e-6, 1e-3, -5e-4, 1.0)])
    K = torch.cat([K, 1e12 * with_smallest_eigenvalue(-1e-12)[None]]).unflatten(0, (5, 1))
    L = cholesky(K, 1e-6)
    for i in range(5):
        assert torch.equal(L[i, 0], cholesky(K[i, 0], 1e-6))
    added = torch.diagonal(L @ L.mT - K, dim1=-2, dim2=-1)[:4, 0]
    expected = 1e-6 * torch.tensor([[10.0], [1.0], [1000.0], [1.0]]).double().expand(4, 4)
    torch.testing.assert_close(added, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("batch", [(), (2, 1)])
def test_more_jitter_is_no_matter_of_gradients(batch):
    """Looking for it says nothing of a graph."""
    K = (1e12 * with_smallest_eigenvalue(-5e-12)).expand(*batch, 4, 4).clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cholesky(K, 1e-10).sum().backward()
    assert torch.isfinite(K.grad).all()


@pytest.mark.parametrize(("smallest", "jitter"), [(-5e-3, 1e-6), (-1e-9, 0.0)])
def test_cholesky_gives_up(smallest, jitter):
    with pytest.raises(torch.linalg.LinAlgError, match="not positive definite"):
        cholesky(with_smallest_eigenvalue(smallest), jitter)


def test_cholesky_accepts_no_bad_matrix_in_a_batch_and_no_nan():
    for K in (torch.stack([torch.eye(3), -torch.eye(3)]), torch.full((3, 3), torch.nan)):
        with pytest.raises(torch.linalg.LinAlgError):
            cholesky(K.double(), 1e-6)


def test_cholesky_has_the_gradient_of_the_factor():
    A = random_spd(4, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda A: cholesky(A @ A.mT, 0.3), A)


def test_add_diagonal_makes_a_new_tensor():
    K = torch.ones(2, 3, 3)
    torch.testing.assert_close(add_diagonal(K, 2.0), (1.0 + 2.0 * torch.eye(3)).repeat(2, 1, 1))
    assert torch.equal(K, torch.ones(2, 3, 3))


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 4, 4)])
def test_inverse_triangular_and_root_of_inverse(shape):
    P = random_spd(*shape)
    L, eye = torch.linalg.cholesky(P), torch.eye(shape[-1]).double().expand(shape)
    torch.testing.assert_close(inverse_triangular(L) @ L, eye, rtol=0, atol=1e-12)
    C = root_of_inverse(P)
    torch.testing.assert_close(C @ C.mT, torch.linalg.inv(P), rtol=1e-10, atol=1e-10)
    assert torch.equal(C, C.tril())
    assert (torch.diagonal(C, dim1=-2, dim2=-1) > 0).all()


def test_root_of_inverse_refuses_a_batch_with_one_indefinite_matrix():
    indefinite = torch.diag(torch.tensor([1.0, -1.0, 1.0]))
    assert root_of_inverse(torch.stack([torch.eye(3), indefinite])) is None


class TestWorkspace:
    like = torch.empty(0, dtype=torch.float64)

    def test_memory_is_used_again_only_after_it_was_handed_back(self):
        with workspace():
            space = current_workspace()
            a, b = space.take((2, 3), self.like), space.take((2, 3), self.like)
            assert a.data_ptr() != b.data_ptr()
            address = a.data_ptr()
            assert space.give(a) is None
            assert space.take((2, 3), self.like).data_ptr() == address

    def test_shapes_and_dtypes_are_kept_apart(self):
        with workspace():
            space = current_workspace()
            space.give(space.take((2, 3), self.like))
            assert space.take((3, 2), self.like).shape == (3, 2)
            assert space.take((2, 3), self.like.float()).dtype == torch.float32
            assert space.take((2, 3), self.like).dtype == torch.float64

    def test_outside_of_the_context_a_tensor_that_is_handed_back_stays_readable(self):
        space = current_workspace()
        a = space.take((2, 3), self.like)
        assert space.give(a) is a
        assert space.take((2, 3), self.like).data_ptr() != a.data_ptr()

    def test_the_context_ends_also_by_an_error(self):
        outside = current_workspace()

        def fail():
            with workspace():
                assert current_workspace() is not outside
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        assert current_workspace() is outside

    def test_threads_do_not_share_memory(self):
        seen = []
        with workspace():
            thread = threading.Thread(target=lambda: seen.append(current_workspace()))
            thread.start()
            thread.join()
            assert seen[0] is not current_workspace()


@pytest.mark.parametrize("M", [1, 5, 64, 65, 300])
def test_gram(M):
    rng = np.random.default_rng(0)
    A, weights = rng.standard_normal((M, 7)), rng.standard_normal((2, 7))
    G = gram(torch.as_tensor(A), torch.as_tensor(weights))
    for G_k, w in zip(G, weights):
        np.testing.assert_allclose(G_k, A @ np.diag(w) @ A.T, atol=1e-12)
        assert torch.equal(G_k, G_k.T)


@pytest.mark.parametrize("M", [1, 5, 64, 65, 300])
def test_symmetric_products(M):
    rng = np.random.default_rng(1)
    A, S = rng.standard_normal((M, 7)), rng.standard_normal((2, 7, 7))
    B = A @ (S + S.swapaxes(1, 2))
    G = symmetric_products(torch.as_tensor(B), torch.as_tensor(A))
    np.testing.assert_allclose(G, B @ A.T, atol=1e-11)
    assert torch.equal(G, G.mT)


@pytest.mark.parametrize("M", [1, 5, 36, 37, 100, 300])
def test_triangular_product(M):
    L, B = random_spd(M, M).tril(), random_spd(M, M)[:, :3]
    out = torch.full_like(B, torch.nan)
    assert triangular_product(L, B, out) is out
    torch.testing.assert_close(out, L @ B, rtol=1e-12, atol=1e-9)
    triangular_product(L, B, out, transposed=True)
    torch.testing.assert_close(out, L.T @ B, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 121, 240])
def test_triangular_matrices_are_packed_in_half_the_room(n):
    L = np.linalg.cholesky(random_spd(3, n, n).numpy())
    P = packed(L)
    assert P.size == 3 * (n + 1) * ((n + 1) // 2)
    assert np.array_equal(unpacked(P), L)


@pytest.mark.parametrize("n_matrices", [1, 3])
def test_log_normal_and_its_gradients(n_matrices):
    y = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y, K = y.requires_grad_(), random_spd(n_matrices, 5, 5).requires_grad_()
    normal = torch.distributions.MultivariateNormal(torch.zeros(5).double(), 0.5 * (K + K.mT))
    expected, found = normal.log_prob(y).sum(), LogNormal.apply(y, K)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    for a, b in zip(torch.autograd.grad(found, (y, K)), torch.autograd.grad(expected, (y, K))):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(1,), (4,), (2, 3, 4)])
def test_whitened_gives_the_factor_and_standard_normal_values_with_gradients(shape):
    K, n = random_spd(*shape, shape[-1]), shape[-1]
    y = torch.as_tensor(np.random.default_rng(3).standard_normal((*shape[:-1], n - 1)))
    y.requires_grad_()
    L, z = Whitened.apply(K, y, 1e-3)
    jittered = K + 1e-3 * torch.eye(n).double()
    torch.testing.assert_close(L, torch.linalg.cholesky(jittered), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close((L[..., :-1, :-1] @ z[..., None])[..., 0], y)
    B = K.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda B, y: Whitened.apply(B @ B.mT, y, 1e-3), (B, y))
