"""Layers of random features: Gaussian processes as Bayesian linear models."""

import copy
import math

import numpy as np
import torch
from scipy.special import gammaincinv

from ...gp.gaussian import DiagonalBlock, GaussianBlock
from ...gp.kernels import ArcCosine, Matern, SquaredExponential
from ...gp.kernels.base import tensor_like
from ...gp.kernels.inner import rectified
from ...gp.stack import Layer
from ...random import normal, sobol_normal
from .products import cos_sin, cos_sin_moments, local_moments, quadratic_forms

SAMPLINGS = "auto", "sobol", "orthogonal", "independent"  #: of frequencies
_SPREAD = 0.1  #: where resampled frequencies start, in units of their prior


class FeatureLayer(Layer):
    r"""Functions ``f_d(h) = phi(h) w_d`` with random features and weights ``w_d ~ N(0, I)``.

    For the squared exponential and Matern kernels,
    :math:`\phi(h) = \sqrt{\sigma^2 / R}\,[\cos h \Omega, \sin h \Omega]`. The columns of
    :math:`\Omega` follow the spectral density of the kernel (Cutajar et al., 2017, equations 4 and
    5). For the arc-cosine kernel,
    :math:`\phi(h) = \sqrt{2 \sigma^2 / R}\,\max(0, h \Omega + \omega_0)^p` with its order `p`, a
    step for `p = 0`.

    The frequencies `z` (n_inputs, R), in units of inverse lengthscales, have one row more for the
    bias of the arc-cosine kernel. For Matern kernels `mix` (R,) makes their prior a multivariate t.
    The posterior of the weights is `full`, with natural-gradient steps, or they are independent and
    start at `variance`.
    """

    def __init__(
        self,
        kernel,
        n_inputs,
        n_outputs,
        n_frequencies,
        frequencies="fixed",
        full=False,
        linear_mean=False,
        variance=1.0,
        sampling="auto",
    ):
        super().__init__(kernel, n_inputs, n_outputs, linear_mean)
        if not isinstance(kernel, (SquaredExponential, Matern, ArcCosine)):
            raise ValueError(
                f"inference='rff' has no random features of {type(kernel).__name__} kernels; choose "
                "SquaredExponential, Matern or ArcCosine."
            )
        self.n_inputs = n_inputs
        self.trigonometric = not isinstance(kernel, ArcCosine)
        self.resampled, self.sampling = frequencies == "resampled", sampling
        shape = n_inputs if self.trigonometric else n_inputs + 1, n_frequencies
        self.register_buffer("z", torch.zeros(shape, dtype=torch.float64))
        mix = torch.ones(n_frequencies, dtype=torch.float64) if isinstance(kernel, Matern) else None
        self.register_buffer("mix", mix)
        self.q_omega = None if frequencies == "fixed" else DiagonalBlock(*shape)
        n_weights = 2 * n_frequencies if self.trigonometric else n_frequencies
        if full:
            self.q = GaussianBlock(n_weights, n_outputs, math.sqrt(variance), natural=True)
        else:
            self.q = DiagonalBlock(n_weights, n_outputs, variance)

    @property
    def Z(self):
        """Inducing inputs, of which there are none."""
        return self.z.new_zeros(0, self.n_inputs)

    @torch.no_grad()
    def start(self, Z, W, rng, spread=_SPREAD):
        """Draw the frequencies, place their posterior around them, and set the mean function.

        With zero means of all weights, the expected gradient of hidden layers is zero unless a mean
        function tells their units apart; without one, their means start at draws from the prior.
        Posterior deviations of resampled frequencies are `spread` times the prior's.
        """
        self.z.copy_(torch.as_tensor(draw_frequencies(*self.z.shape, rng, self.sampling)))
        if self.mix is not None:
            df = 2.0 * self.kernel.component.nu
            chi2 = stratified_chi2(df, len(self.mix), rng)
            self.mix.copy_(torch.as_tensor(np.sqrt(df / chi2)))
        if self.resampled:  # the prior's second moments, and less noise
            self.q_omega.mean.copy_(math.sqrt(1.0 - spread**2) * self.z)
            self.q_omega.rho.fill_(2.0 * math.log(spread))
        super().start(Z, W, rng)
        if W is not None and self.W is None:
            self.q.mean.copy_(torch.as_tensor(rng.standard_normal(self.q.mean.shape)))

    def basis(self, xi, like):
        """Map of inputs to features without their common factor, and its square; `xi` resamples."""
        project, c2 = self._projection(xi, like)
        if self.trigonometric:
            return lambda H: (cos_sin(project(H)), c2)
        order = self.kernel.component.order
        return lambda H: (rectified(project(H), order), c2)

    def _projection(self, xi, like):
        """Return the map from inputs to arguments of the features, and the square of their common factor."""
        kernel, z = self.kernel(), tensor_like(self.z, like)
        if self.q_omega is not None:
            mean, var = self.q_omega.moments(like.dtype)
            z = mean + var.sqrt() * (xi if self.resampled else z)
        if self.mix is not None:
            z = z * tensor_like(self.mix, like)
        c2 = tensor_like(kernel.variance, like) / z.shape[-1]
        Omega = z[..., : self.n_inputs, :] / tensor_like(kernel.lengthscale, like)[..., None]
        if self.trigonometric:
            return lambda H: H @ Omega, c2
        shift = tensor_like(kernel.bias, like) * z[..., self.n_inputs :, :]
        return lambda H: H @ Omega + shift, 2.0 * c2

    def noise(self):
        """Variance that is added to the outputs: none."""
        return 0.0

    def moments(self, H, xi=None, weights=None):
        """Mean and variance of the outputs, given the frequencies (Kingma et al., 2015)."""
        independent = isinstance(self.q, DiagonalBlock)
        if weights is None and independent and self.trigonometric:
            project, c2 = self._projection(xi, H)
            mean, var = cos_sin_moments(project(H), *self.q.moments(H.dtype))
            return c2.sqrt() * mean + self.mean_function(H), c2 * var
        Phi, c2 = self.basis(xi, H)(H)
        if weights is not None:
            mean = c2.sqrt() * (Phi @ weights.to(H.dtype))
            return mean + self.mean_function(H), torch.zeros_like(mean)
        if independent:
            mean, var = local_moments(Phi, *self.q.moments(H.dtype))
        else:
            q_mean, Q = self.q.moments()
            flat = Phi.reshape(-1, Phi.shape[-1])
            forms = quadratic_forms(flat, Q).reshape(*Phi.shape[:-1], self.n_outputs)
            prior = 0.5 * Phi.shape[-1] if self.trigonometric else Phi.square().sum(-1)[..., None]
            mean, var = Phi @ q_mean.to(H.dtype), prior + forms
        return c2.sqrt() * mean + self.mean_function(H), c2 * var

    shared_moments = moments

    def frozen(self):
        """The layer as it is now, for predictions."""
        layer = copy.deepcopy(self).requires_grad_(False)
        for block in (layer.q, layer.q_omega):
            if block is not None:
                block.held = True  # without gradients of its own
        return layer

    def functions(self, n, n_features, generator, v=None):
        """Draws of functions, by the layer's own features: means and deviations."""
        xi = self.draw_xi(n, generator) if self.resampled else None
        phi, center = self.basis(xi, self.z), self.q.mean.to(self.z)
        w = self.q.sample(n, generator).to(self.z) - center

        def f(H):
            Phi, c2 = phi(H)
            return c2.sqrt() * (Phi @ center) + self.mean_function(H), c2.sqrt() * (Phi @ w)

        return f

    def draw_xi(self, n, generator, like=None):
        """Draws for :meth:`basis`."""
        return normal((n, *self.z.shape), generator, self.z if like is None else like)


def draw_frequencies(n_inputs, n, rng, sampling="auto"):
    """Directions of random features (n_inputs, n); every single one is standard normal.

    They are scrambled Sobol points, orthogonal blocks (Yu et al., 2016) with stratified lengths, or
    independent. ``"auto"`` takes Sobol points for at most 4 inputs, for at most 8 from 128
    frequencies on, and else orthogonal ones: they halve the error of the kernel, or better.
    """
    if sampling == "auto":
        few = n_inputs <= 4 or (n_inputs <= 8 and n >= 128)
        sampling = "sobol" if few else "orthogonal"
    if sampling == "independent":
        return rng.standard_normal((n_inputs, n))
    if sampling == "sobol":
        return sobol_normal(n, n_inputs, rng.randint(2**31 - 1)).T
    blocks = []
    for _ in range(-(-n // n_inputs)):
        Q, R = np.linalg.qr(rng.standard_normal((n_inputs, n_inputs)))
        blocks.append(Q * np.sign(np.diag(R)))  # without the signs not uniform over rotations
    return np.hstack(blocks)[:, :n] * np.sqrt(stratified_chi2(n_inputs, n, rng))


def stratified_chi2(df, n, rng):
    """`n` draws of a chi-square variable, one from each of `n` equally likely intervals."""
    u = (rng.permutation(n) + rng.uniform(size=n)) / n
    return 2.0 * gammaincinv(0.5 * df, u.clip(1e-12, 1.0 - 1e-12))
