"""Rows on their way through layers whose inducing variables are coupled."""

import numpy as np
import torch

from .products import bilinear, forms, small_cholesky, substitute

_FLOOR = 1e-12  #: least variance


def propagate(layers, whitened, pattern, moments, X, eps):
    r"""Moments of the last layer given the draws of the hidden ones (theorem 1).

    Units condition on the earlier ones of their chain. With the growing Cholesky factor
    :math:`\Lambda` of these, and draws :math:`f = \hat\mu + R \epsilon` throughout,
    :math:`\Lambda^{-1} (f - \tilde\mu) = \epsilon`; so equations 10 and 11 are
    :math:`\hat\mu = \tilde\mu + Y^T \epsilon` and :math:`\hat\Sigma = \tilde S - Y^T Y` with
    :math:`Y = \Lambda^{-1} \tilde S_{<\ell, \ell}`.

    ``whitened(layer, H)`` gives ``L^{-1} k(Z, H)`` (M, s, n) and ``k(H, H)`` (s, n) for rows H (s,
    n, n_inputs). The draws `eps` (S, n or 1, width) are for the hidden layers. If several outputs
    are coupled to these, draws for the covariance of the outputs given the hidden units may follow.
    Outputs are independent given all draws. Without those for the outputs, moments are of each
    output by itself. Returns means and variances (S, n, n_latents), with one `S` without hidden
    layers, and the prior's variance of the last layer, (s, n).
    """
    last, rows = len(layers) - 1, []
    past = [_Past() for _ in pattern.chains]

    def visit(i, layer, H):
        A, k_ff = whitened(layer, H)  # M, s, n
        rows.append(A)
        mean, squares = forms(A, moments.means[i].to(A.dtype), moments.squares[i])  # D, s, n
        if layer.W is not None:
            mean = mean + layer.mean_function(H).permute(2, 0, 1)
        own = k_ff + layer.noise()  # with the identity that squares leave out

        def crosses(c):
            before = pattern.chains[c].before(i)
            return [bilinear(A, rows[j], moments.crosses[i, c, j]) for j in before]

        if i == last:
            K, chains = layer.n_outputs, enumerate(past if pattern.arrow else ())
            conditioned = [of_chain.condition(crosses(c)) for c, of_chain in chains]
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
        drawn, parts = [], pattern.parts[i]
        for c, units, which in ((part.chain, part.units.T, part.forms) for part in parts):
            f = past[c].draw(mean[units], squares[which], own, crosses(c), e[units], floor)
            drawn.append(f.flatten(0, 1))  # u w, S, n
        order = np.argsort(np.concatenate([part.units.T.ravel() for part in parts]))
        return torch.cat(drawn)[order].permute(1, 2, 0)

    return layers.walk(X[None], visit)


class _Past:
    """The earlier units of the chains: the factor of their covariance, and their draws."""

    factor = eps = None

    def condition(self, crosses):
        """Shift (K, S, n) of the means of outputs given the past, and roots of what they lose."""
        Y = substitute(self.factor, torch.cat(crosses))
        return (Y * self.eps[:, None]).sum((0, 2)), Y.transpose(1, 2).flatten(0, 1)

    def draw(self, mean, E, own, crosses, eps, floor):
        """Draws (u, w, S, n) of units given the past, of which they become a part."""
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
