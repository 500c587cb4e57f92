"""Deep Gaussian process classification."""

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from ..gp.likelihoods import CLASSIFICATION, Bernoulli
from .base import BaseDeepGP


class DeepGPClassifier(ClassifierMixin, BaseDeepGP):
    """Deep Gaussian process classification.

    A composition of sparse Gaussian processes, trained on raw data, with calibrated probabilities.

    Parameters
    ----------
    n_layers : int, default=2
        Number of GP layers. 1 is a shallow sparse GP, 2 has one hidden layer.
    width : int, list of int or None, default=None
        Outputs of each hidden layer. None stands for the number of inputs, at most 30.
    n_inducing : int or None, default=None
        Inducing points of each layer; None leaves the choice to the scheme.
    kernel : str, Kernel or list of these, default="auto"
        One for every layer, or one for each: ``"squared_exponential"``, ``"matern32"``,
        ``"matern52"``, ``"rational_quadratic"``, ``"arc_cosine"``, ``"linear"``, or objects of
        :mod:`skdgp.gp.kernels`, also their sums and products. Lengthscales are in units of the
        standardized inputs. ``"auto"`` is the squared exponential.
    mean : {"linear", "zero"}, default="linear"
        Mean function of the hidden layers. The linear one is the identity, padded with zeros for
        wider layers, or the projection to principal directions for narrower ones.
    input_connected : bool, default=False
        Whether later layers see the inputs beside the outputs of the layer before.
    likelihood : str or Likelihood, default="auto"
        ``"probit"``, ``"logit"``, ``"softmax"``, ``"robustmax"``, or an object of
        :mod:`skdgp.gp.likelihoods`. ``"auto"`` lets the scheme choose.
    inference : str or Scheme, default="auto"
        The inference scheme, an object of :mod:`skdgp.inference` or its name; ``"auto"`` is
        ``"dsvi"``.
    init : {"kmeans", "random", "median", "greedy"} or estimator, default="kmeans"
        Where training starts: with inducing inputs at centers of the training rows or at random
        rows; as in the literature on expectation propagation; with hidden units that a sparse
        Gaussian process has taught; or with the state of a fitted estimator, see the user guide.
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
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    kernels_ : list of Kernel
        Kernel of each layer with fitted numbers, in units of the standardized inputs.
    likelihood_ : Likelihood
        With fitted numbers, in units of the target.
    inducing_inputs_ : list of ndarray
        Inducing inputs of each layer; those of the first in units of the inputs.
    members_ : list of Member
        The models whose mixture predicts.
    n_iter_ : int
        Number of steps made.
    loss_curve_ : list of float
        Negative lower bound per row and step, in units of the standardized target.
    validation_scores_ : list of float
        Mean log-density of the held-out rows after each block of 50 steps, and after the last step.
    lower_bound_ : float
        Lower bound on the log evidence of the training rows, in units of the target.
    device_ : str
        Where the model was trained.
    n_features_in_ : int
        Number of features seen during ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during ``fit``, if they are all strings.

    See Also
    --------
    DeepGPRegressor : Deep Gaussian process regression.

    References
    ----------
    H. Salimbeni and M. Deisenroth (2017). Doubly stochastic variational inference for deep Gaussian
    processes. Advances in Neural Information Processing Systems 30.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdgp import DeepGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DeepGPClassifier(max_iter=100, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:1]).shape
    (1, 3)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _likelihoods = CLASSIFICATION
    _y_checks = {}

    def _n_classes(self):
        return len(self.classes_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        binary = isinstance(self.likelihood, Bernoulli) or self.likelihood in ("probit", "logit")
        tags.classifier_tags.multi_class = not binary
        return tags

    def _encode(self, y, reset, classes=None):
        y = column_or_1d(y, warn=reset)
        if reset:
            check_classification_targets(y)
            self.classes_ = np.unique(y if classes is None else classes)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"{type(self).__name__} needs samples of at least 2 classes in the data, but the data "
                    f"contains only one class: {self.classes_[0]!r}."
                )
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y contains classes that were not there at first: {unknown.tolist()}."
            )
        return np.searchsorted(self.classes_, y).astype(np.float64)[:, None]

    def _check_likelihood(self, likelihood, y):
        likelihood.check_n_classes(len(self.classes_))

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Make one pass over a chunk of rows.

        Scaling, inducing inputs and starting values come from the first call; the bound counts all
        rows seen so far. What earlier chunks taught fades as later ones come, because only the
        present chunk is looked at.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,), optional
            All classes that will ever come; needed in the first call if they are not all in `y`.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self : estimator
        """
        if classes is not None and hasattr(self, "members_"):
            classes = np.unique(classes)
            if not np.array_equal(classes, self.classes_):
                raise ValueError(
                    f"`classes={classes!r}` is not the same as on last call to partial_fit, was: "
                    f"{self.classes_!r}"
                )
        return self._partial_fit(X, y, sample_weight, classes)

    def predict(self, X):
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(1)]

    def predict_proba(self, X):
        """Predict the probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X):
        """Predict the logarithms of the probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
        """
        return self._predict_rows(self._check_X(X), "log_probabilities")

    def log_predictive_density(self, X, y):
        """Log-probability of the given class at each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        log_probability : ndarray of shape (n_samples,)
        """
        X, y = self._check_X_y(X, y)
        log_proba = self._predict_rows(X, "log_probabilities")
        return log_proba[np.arange(len(X)), y[:, 0].astype(int)]

    def sample_y(self, X, n_samples=1, random_state=0, latent=False):
        """Draw from the predictive distribution.

        Each draw is one set of latent functions, evaluated at all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
        latent : bool, default=False
            Return the latent functions: the same ones for the same `random_state`, whatever the
            rows. Otherwise labels are drawn afresh for every row.

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples), or (n_samples_X, n_latents, n_samples) if
        `latent` is True
        """
        X = self._check_X(X)
        seed = int(check_random_state(random_state).randint(2**31 - 2))
        y = self._draw(X, n_samples, seed, "latent" if latent else "y")
        return np.moveaxis(y, 0, -1) if latent else self.classes_[y[..., 0].T.astype(int)]
