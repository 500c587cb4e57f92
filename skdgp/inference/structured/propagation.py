"""Rows on their way through layers whose inducing variables are coupled."""

import torch

from .products import bilinear, forms, small_cholesky, substitute

_FLOOR = 1e-12  #: least variance


def propagate(layers, whitened, pattern, moments, X, eps):
    r"""Moments of the last layer given the draws of the hidden ones (theorem 1).

    Units condition on the earlier ones of their chain. With the growing Cholesky factor
    :math:`\Lambda` of these, and draws :math:`f = \hat\mu + R \epsilon` throughout,
    :math:`\Lambda^{-1} (f - \tilde\mu) = \epsilon`; so equations 10 and 11 are
    :math:`\hat\mu = \tilde\mu + Y^T \epsilon` and :math:`\hat\Sigma = \tilde S - Y^T Y`
    with :math:`Y = \Lambda^{-1} \tilde S_{<\ell, \ell}`.

    Parameters
    ----------
    layers : Stack or FrozenStack
    whitened : callable
        ``L^{-1} k(Z, H)`` (M, s, n) and ``k(H, H)`` (s, n) of a layer, for rows H (s, n, n_inputs).
    pattern : Pattern
    moments : Moments
    X : tensor of shape (n, n_features)
    eps : list of tensors of shape (S, n, width) or (S, 1, width)
        Standard normal draws for the hidden layers. If several outputs are coupled to these,
        draws for the covariance of the outputs given the hidden units may follow. Outputs are
        independent given all draws. Without those for the outputs, moments are of each output by
        itself.

    Returns
    -------
    mean, var : tensors of shape (S, n, n_latents); S is 1 without hidden layers
    k_ff : tensor of shape (s, n)
        The prior's variance of the last layer.
    """
    last = len(layers) - 1
    past = [_Past() for _ in pattern.chains]
    rows = []

    def visit(i, layer, H):
        A, k_ff = whitened(layer, H)  # M, s, n
        rows.append(A)
        mean, squares = forms(A, moments.means[i].to(A.dtype), moments.squares[i])  # D, s, n
        if layer.W is not None:
            mean = mean + layer.mean_function(H).permute(2, 0, 1)
        own = k_ff + layer.noise()  # with the identity that squares leave out
        tied = pattern.tied(i)
        crosses = {
            c: [
                bilinear(A, rows[j], moments.crosses[i, c, j])
                for j in pattern.chains[c].layers
                if j < i
            ]
            for c in tied
        }
        if i == last:
            K, conditioned = layer.n_outputs, [past[c].condition(crosses[c]) for c in tied]
            mean = mean + sum(shift for shift, _ in conditioned)
            var = squares[:K] + own
            if pattern.shares:
                E = squares[K:][pattern.shared_forms()]
                E = E - sum((Y[:, :, None] * Y[:, None]).sum(0) for _, Y in conditioned)
                if len(eps) > i:
                    R = small_cholesky(E, _rounding(E))  # K, K, S, n
                    mean = mean + (R * eps[i].permute(2, 0, 1)).sum(1)
                else:
                    var = var + torch.diagonal(E).permute(2, 0, 1)
            else:
                var = var - sum(Y.square().sum(0) for _, Y in conditioned)
            mean, var = torch.broadcast_tensors(mean, var.clamp_min(_FLOOR))
            return mean.permute(1, 2, 0), var.permute(1, 2, 0), k_ff
        e, floor = eps[i].permute(2, 0, 1), _floor(layer.noise(), X)
        parts = []
        for c in tied:
            units, places = pattern.forms(i, c)
            f = past[c].draw(mean[units], squares[places], own, crosses[c], e[units], floor)
            parts.append(f.flatten(0, 1))  # u w, S, n
        return torch.cat(parts)[pattern.order(i)].permute(1, 2, 0)

    return layers.walk(X[None], visit)


class _Past:
    """The earlier units of the chains, as each row has met them.

    Attributes
    ----------
    factor : tensor of shape (p, p, w, S, n)
        Cholesky factor of their covariance.
    eps : tensor of shape (p, w, S, n)
        The standard normal draws behind them.
    """

    factor = eps = None

    def condition(self, crosses):
        """Condition outputs on the past, from their covariances (p, K, w, S, n) with it.

        Returns
        -------
        shift : tensor of shape (K, S, n)
            To be added to the means.
        Y : tensor of shape (p w, K, S, n)
            Their squares are to be taken from the covariance.
        """
        Y = substitute(self.factor, torch.cat(crosses))
        return (Y * self.eps[:, None]).sum((0, 2)), Y.transpose(1, 2).flatten(0, 1)

    def draw(self, mean, E, own, crosses, eps, floor):
        """Draws of units given the past, of which they become a part.

        Parameters
        ----------
        mean : tensor of shape (u, w, s, n)
        E : tensor of shape (u, u, w, s, n)
            Covariance, less `own` (s, n) on its diagonal.
        crosses : list of tensors of shape (p, u, w, S, n)
            Covariances with the past, one earlier layer after the other.
        eps : tensor of shape (u, w, S, n) or (u, w, S, 1)
        floor : tensor of shape ()
            A variance below which no conditional one can fall.

        Returns
        -------
        f : tensor of shape (u, w, S, n)
        """
        u = len(E)
        E = E + torch.eye(u, dtype=E.dtype, device=E.device)[..., None, None, None] * own
        if self.factor is not None:
            Y = substitute(self.factor, torch.cat(crosses))
            mean = mean + (Y * self.eps[:, None]).sum(0)
            E = E - (Y[:, :, None] * Y[:, None]).sum(0)
        R = small_cholesky(E, floor)
        f = mean + (R * eps).sum(1)
        R, eps = R.expand(u, u, *f.shape[1:]), eps.expand(f.shape)
        if self.factor is None:
            self.factor, self.eps = R, eps
            return f
        p = len(self.factor)
        above = torch.cat([self.factor, self.factor.new_zeros(p, u, *f.shape[1:])], 1)
        self.factor = torch.cat([above, torch.cat([Y.transpose(0, 1), R], 1)])
        self.eps = torch.cat([self.eps, eps])
        return f


def _rounding(E):
    """A variance that rounding can bring about."""
    return torch.tensor(max(1e-10, 10.0 * torch.finfo(E.dtype).eps), device=E.device)


def _floor(noise, like):
    """Return a lower bound of every conditional variance, from the noise of a layer."""
    return torch.as_tensor(noise, device=like.device).detach().clamp_min(_FLOOR)
