"""Deep Gaussian process regression."""

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state

from .._scoring import check_alpha, check_coverage
from ..gp.likelihoods import REGRESSION, Gaussian, HeteroscedasticGaussian
from ..inference import DSVI, VFE
from .base import BaseDeepGP
from .members import Plan

_COVARIANCE_DRAWS = 512
_LOOSE = 0.1  #: start of hidden posteriors that keeps more of the prior
_FEW_ROWS = 4000  #: rows up to which a deep model may follow noise
_MOST_ROWS = 50_000  #: rows up to which a shallow GP on all of them takes part


class DeepGPRegressor(MultiOutputMixin, RegressorMixin, BaseDeepGP):
    """Deep Gaussian process regression.

    A composition of sparse Gaussian processes, trained on raw data and predicting distributions. By
    default the predictions are those of an equal mixture of models that err differently: one or two
    deep Gaussian processes with noise that depends on the inputs, and a shallow one; a scheme given
    as `inference` trains a single model. Attributes with fitted numbers are those of the first model.

    Parameters
    ----------
    n_layers : int, default=2
        Number of GP layers of the deep models. 1 is a shallow sparse GP, 2 has one hidden layer.
    width : int, list of int or None, default=None
        Outputs of each hidden layer. None stands for the number of inputs, at most 30.
    n_inducing : int or None, default=None
        Inducing points of each layer; None leaves the choice to the scheme.
    kernel : str, Kernel or list of these, default="auto"
        One for every layer, or one for each: ``"squared_exponential"``, ``"matern32"``,
        ``"matern52"``, ``"rational_quadratic"``, ``"arc_cosine"``, ``"linear"``, or objects of
        :mod:`skdgp.gp.kernels`, also their sums and products. Lengthscales are in units of the
        standardized inputs. ``"auto"`` is the squared exponential, and Matern 3/2 for the shallow
        member of the mixture.
    mean : {"linear", "zero"}, default="linear"
        Mean function of the hidden layers. The linear one is the identity, padded with zeros for
        wider layers, or the projection to principal directions for narrower ones.
    input_connected : bool, default=False
        Whether later layers see the inputs beside the outputs of the layer before.
    likelihood : str or Likelihood, default="auto"
        ``"gaussian"``, ``"heteroscedastic"``, ``"student_t"``, ``"poisson"``, or an object of
        :mod:`skdgp.gp.likelihoods`. ``"auto"`` lets the scheme choose: Gaussian noise for a single
        model, heteroscedastic noise for the deep members of the mixture.
    inference : str or Scheme, default="auto"
        ``"auto"`` for the mixture; ``"dsvi"``, ``"structured"``, ``"vfe"`` or an object of
        :mod:`skdgp.inference` for a single model. ``set_params(inference__...)`` turns ``"auto"``
        into ``"dsvi"``.
    init : {"kmeans", "random"}, default="kmeans"
        Where inducing inputs start: at centers of the training rows, or at random rows.
    max_iter : int or None, default=None
        Number of optimizer steps; None leaves the choice to the scheme.
    max_time : float or None, default=None
        Seconds after which ``fit`` ends, with a warning. The step size is lowered in time.
    batch_size : int or None, default=None
        Rows of a minibatch; None leaves the choice to the scheme.
    learning_rate : float or None, default=None
        Step size of the optimizer; None leaves the choice to the scheme.
    n_predict_draws : int, default=64
        Draws through the hidden layers in prediction, best a power of two. They are made once, in
        ``fit``, and shared by all rows.
    early_stopping : bool, default=False
        Whether to hold out rows, stop when their log-density no longer improves, and keep the best
        state. The held-out rows are lost to training.
    validation_fraction : float, default=0.1
        Share of rows that early stopping holds out.
    n_iter_no_change : int, default=10
        Number of blocks of 50 steps without progress after which training stops, if there is
        validation or `tol` is positive.
    tol : float, default=0.0
        Smallest progress that counts: of the validation score or, without validation, of the loss
        averaged over a block. With 0 and without validation, training makes `max_iter` steps.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last fit, with its scaling and shape.
    standardize : bool, default=True
        Whether inputs, and the target where the likelihood allows, are centered and scaled inside.
        The scaling of inputs is safe against outliers. Everything that comes out is in the units
        that went in.
    checkpoint : str, path-like, Checkpoint or None, default=None
        File in which the state of training is kept. If it exists, ``fit`` with the same parameters
        and data goes on from there.
    device : str, default="auto"
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and so on; ``"auto"`` takes a GPU if there is one.
    dtype : {"auto", "float64", "float32"}, default="auto"
        Precision of the large matrix products in training. Small matrices and predictions are in
        float64 always.
    n_threads : int or None, default=None
        Limit on the number of threads during ``fit`` and prediction.
    random_state : int, RandomState instance or None, default=None
        Determines starting values, minibatches and draws.
    verbose : int, default=0
        If positive, prints a line every 50 steps.

    Attributes
    ----------
    kernels_ : list of Kernel
        Kernel of each layer with fitted numbers, in units of the standardized inputs.
    likelihood_ : Likelihood
        With fitted numbers, in units of the target.
    inducing_inputs_ : list of ndarray
        Inducing inputs of each layer; those of the first in units of the inputs.
    members_ : list of Member
        The models whose mixture predicts, with their `weight`.
    n_iter_ : int
        Number of steps made.
    loss_curve_ : list of float
        Negative lower bound per row and step, in units of the standardized target.
    validation_scores_ : list of float
        Mean log-density of the held-out rows after each block of 50 steps, and after the last step.
    lower_bound_ : float
        Lower bound on the log evidence of the training rows for the first model, in units of the
        target.
    device_ : str
        Where the model was trained.
    n_features_in_ : int
        Number of features seen during ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during ``fit``, if they are all strings.

    See Also
    --------
    DeepGPClassifier : Deep Gaussian process classification.

    References
    ----------
    A. Damianou and N. Lawrence (2013). Deep Gaussian processes. AISTATS 16.

    H. Salimbeni and M. Deisenroth (2017). Doubly stochastic variational inference for deep Gaussian
    processes. Advances in Neural Information Processing Systems 30.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = (X[:, 0] > 0.5).astype(float)
    >>> model = DeepGPRegressor(max_iter=300, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[0.2], [0.8]], return_std=True)
    >>> mean.round(1) + 0.0
    array([0., 1.])
    >>> model.predict_interval([[0.2]], coverage=0.9).shape
    (1, 2)
    """

    _likelihoods = REGRESSION
    _y_checks = {"multi_output": True, "y_numeric": True}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        likelihood = self.likelihood
        tags.target_tags.positive_only = likelihood == "poisson" or isinstance(
            likelihood, REGRESSION["poisson"]
        )
        return tags

    def _n_classes(self):
        return None

    def _recipe(self, n_rows):
        free = isinstance(self.likelihood, str) and self.likelihood == "auto"
        deep = [self._plan(DSVI())]
        if self.n_layers > 1 and n_rows <= _FEW_ROWS:  # more rows speak for themselves
            deep.append(self._plan(DSVI(inner_scale=_LOOSE)))
        if free:
            for plan in deep:
                plan.likelihood = HeteroscedasticGaussian()
        if self.n_inducing is None:
            for plan, n_inducing in zip(deep, (200, 100)):
                plan.n_inducing = n_inducing
        gaussian = free or self.likelihood == "gaussian" or isinstance(self.likelihood, Gaussian)
        if not gaussian or n_rows > _MOST_ROWS:
            return deep
        kernel = (
            "matern32" if isinstance(self.kernel, str) and self.kernel == "auto" else self.kernel
        )
        if isinstance(kernel, (list, tuple)):  # one for each layer of the deep ones
            return deep
        likelihood = Gaussian() if free else deep[0].likelihood
        return [*deep, Plan(VFE(), likelihood, 1, None, kernel, self.n_inducing)]

    def _encode(self, y, reset, classes=None):
        if reset:
            self._y_ndim = y.ndim
            self._n_outputs = 1 if y.ndim == 1 else y.shape[1]
        elif (1 if y.ndim == 1 else y.shape[1]) != self._n_outputs:
            raise ValueError(
                f"y has {1 if y.ndim == 1 else y.shape[1]} outputs, but the model was fitted with "
                f"{self._n_outputs}."
            )
        return y.reshape(len(y), -1)

    def _check_likelihood(self, likelihood, y):
        likelihood.check_target(y)

    def partial_fit(self, X, y, sample_weight=None):
        """Make one pass over a chunk of rows.

        Scaling, inducing inputs and starting values come from the first call; the bound counts all
        rows seen so far. What earlier chunks taught fades as later ones come, because only the
        present chunk is looked at. One model learns; of a mixture, the first.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self : estimator
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X, return_std=False, return_cov=False, latent=False):
        """Predict the mean, and how far off it may be.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False
            Whether to return standard deviations.
        return_cov : bool, default=False
            Whether to return the covariance of the rows. Its correlations are those of 512 function
            draws, its diagonal is the exact variance.
        latent : bool, default=False
            Predict the latent function, without the noise of the observations.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        std : ndarray of the shape of `mean`
            Only if `return_std` is True.
        cov : ndarray of shape (n_samples, n_samples) or (n_samples, n_samples, n_outputs)
            Only if `return_cov` is True.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        X = self._check_X(X)
        mean, var = self._moments(X, latent)
        if return_std:
            return self._shaped(mean), self._shaped(np.sqrt(var))
        if return_cov:
            return self._shaped(mean), self._covariance(X, var, latent)
        return self._shaped(mean)

    def predict_var(self, X):
        """Predict the variance of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        var : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        return self._shaped(self._moments(self._check_X(X), latent=False)[1])

    def predict_quantiles(self, X, alpha=(0.05, 0.95)):
        """Predict quantiles of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        alpha : float or array-like of floats in (0, 1)
            Orders of the quantiles.

        Returns
        -------
        quantiles : ndarray of shape (n_samples, n_alpha) or (n_samples, n_outputs, n_alpha)
        """
        X = self._check_X(X)
        alpha = check_alpha(alpha)
        q = self._predict_rows(X, "quantiles", alpha=alpha)
        q = q * self._y_scaler.scale[:, None] + self._y_scaler.center[:, None]
        return q[:, 0] if self._y_ndim == 1 else q

    def predict_interval(self, X, coverage=0.9):
        """Predict central intervals of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        coverage : float in (0, 1)
            Probability that the target lies inside.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)
            Lower and upper ends.
        """
        check_coverage(coverage)
        return self.predict_quantiles(X, [0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)])

    def log_predictive_density(self, X, y):
        """Log-density of the target at each row, in the target's units; all outputs together.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
        """
        X, y = self._check_X_y(X, y)
        log_density = self._predict_rows(X, "log_density", self._y_scaler.transform(y))
        return log_density - np.log(self._y_scaler.scale).sum()

    def sample_y(self, X, n_samples=1, random_state=0, latent=False):
        """Draw from the predictive distribution.

        Each draw is one function, evaluated at all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
        latent : bool, default=False
            Return the latent functions: the same function for the same `random_state`, whatever the
            rows. Otherwise fresh noise is added to every row.

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)
        """
        X = self._check_X(X)
        seed = int(check_random_state(random_state).randint(2**31 - 2))
        y = self._draw(X, n_samples, seed, "latent" if latent else "y", k=self._n_outputs)
        y = np.moveaxis(y * self._y_scaler.scale + self._y_scaler.center, 0, -1)
        return y[:, 0] if self._y_ndim == 1 else y

    def _crps(self, X, y):
        """Continuous ranked probability score of each row and output, in the target's units."""
        X, y = self._check_X_y(X, y)
        scores = self._predict_rows(X, "crps", self._y_scaler.transform(y))
        return self._shaped(scores * self._y_scaler.scale)

    def _shaped(self, values):
        return values[:, 0] if self._y_ndim == 1 else values

    def _moments(self, X, latent):
        """Mean and variance in the target's units, (n, k)."""
        if latent:
            mean, var = self._predict_rows(X, "latent_moments", k=self._n_outputs)
        else:
            mean, var = self._predict_rows(X, "moments")
        scale = self._y_scaler.scale
        return mean * scale + self._y_scaler.center, var * scale**2

    def _covariance(self, X, var, latent):
        """Covariance of the rows: correlations from function draws, variances from the mixture."""
        what, k = "latent" if latent else "mean", self._n_outputs
        draws = self._draw(X, _COVARIANCE_DRAWS, 0, what, n_features=512, k=k)
        draws = (draws - draws.mean(0)) * self._y_scaler.scale
        cov = np.einsum("sik,sjk->ijk", draws, draws) / len(draws)
        diagonal = np.einsum("iik->ik", cov)  # a view
        explained = diagonal.copy()  # of the variance, by the function
        if latent or all(
            member.likelihood.scales_target for member in self.members_
        ):  # E[y | f] is f
            explained = self._moments(X, latent=True)[1]
        scale = np.sqrt(np.minimum(explained, var) / np.maximum(diagonal, 1e-300))
        cov *= scale[:, None] * scale[None]
        diagonal[...] = var
        return cov[..., 0] if self._y_ndim == 1 else cov
