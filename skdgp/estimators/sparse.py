"""Shallow sparse Gaussian processes on all rows at once."""

import os
from collections.abc import Sequence
from numbers import Real
from typing import ClassVar

import numpy as np

from ..gp.kernels import Kernel
from ..gp.likelihoods import CLASSIFICATION, Gaussian, Likelihood
from ..inference import VFE, PowerEP
from ..training.checkpoint import Checkpoint
from ._sklearn import Interval, StrOptions
from .base import BaseDeepGP
from .classification import ClassificationMixin
from .regression import TARGET_TRANSFORM, RegressionMixin

_MAX_ITER = 200


class BaseSparseGP(BaseDeepGP):
    """Base class of the shallow estimators: deep ones of which most choices are made."""

    # what else could be chosen
    n_layers, width, mean, input_connected = 1, None, "linear", False
    inference, batch_size, learning_rate, n_predict_draws = "vfe", None, None, 1
    early_stopping, validation_fraction, n_iter_no_change = False, 0.1, 1
    dtype, n_jobs = "auto", None

    _parameter_constraints = {
        **{
            name: BaseDeepGP._parameter_constraints[name]
            for name in (
                "n_inducing",
                "categorical_features",
                "likelihood",
                "max_iter",
                "max_time",
                "tol",
                "warm_start",
                "checkpoint",
                "device",
                "n_threads",
                "random_state",
                "verbose",
            )
        },
        "kernel": [str, Kernel],
        "standardize": ["boolean"],
        "init": [StrOptions({"kmeans", "random"})],
        "train_inducing": ["boolean"],
    }

    _n_inducing: ClassVar[int | None] = (
        None  #: inducing points by default, if the scheme does not choose them
    )

    def _plans(self, data):
        scheme = self._scheme()
        plan = self._plan(scheme, data)
        plan.n_inducing = plan.n_inducing or self._n_inducing or scheme.n_inducing(len(data))
        plan.max_iter = _MAX_ITER
        return [plan]

    def _scheme(self):
        return VFE(self.train_inducing, self.tol)


class SparseGPRegressor(RegressionMixin, BaseSparseGP):
    """Sparse Gaussian process regression on collapsed bounds.

    One layer and Gaussian noise: the posterior at the inducing inputs is known in closed form, and
    L-BFGS finds the hyperparameters of kernel and noise on all rows at once. The result is deterministic,
    needs no step size, and is the baseline that deep models have to beat. With as many inducing
    points as rows it is the exact Gaussian process. Time grows linearly with the rows, and with the
    square of the inducing points; memory beyond the data's does not grow with the rows.

    Parameters
    ----------
    n_inducing : int or None, default=None
        Inducing points. None stands for all rows if these are at most 1,500, for 500 points up to
        10,000 rows, and for 300 beyond.
    kernel : str or Kernel, default="squared_exponential"
        ``"squared_exponential"``, ``"matern32"``, ``"matern52"``, ``"rational_quadratic"``,
        ``"arc_cosine"``, ``"linear"``, ``"anova"``, or an object of :mod:`skdgp.gp.kernels`, also sums and
        products of these. Lengthscales are in units of the standardized inputs. ``"auto"`` is the
        squared exponential, too.
    method : {"vfe", "fitc", "pep"}, default="vfe"
        What is maximized, with ``Q = K_fu K_uu^{-1} K_uf`` and ``d`` the diagonal of ``K_ff - Q``:

        * ``"vfe"``, the variational free energy ``log N(y; 0, Q + s I) - sum(d) / (2 s)``, a lower
          bound on the log marginal likelihood [1]_;
        * ``"fitc"``, the fully independent training conditional ``log N(y; 0, Q + diag(d) + s I)``
          [2]_: noise that depends on the input, a marginal likelihood of another model, and no lower bound;
        * ``"pep"``, power expectation propagation with the power `alpha`, which lies between [3]_.

        The first is the one to trust. The others may call noise what inducing points could explain,
        or none at all: see [4]_.
    alpha : float in (0, 1], default=0.5
        Power of ``method="pep"``: 1 is ``"fitc"``, the limit of small values is ``"vfe"``. Ignored by
        these methods.
    likelihood : "gaussian" or Gaussian, default="gaussian"
        The noise; ``Gaussian(variance=0.1, trainable=False)`` keeps it fixed. Its variance stays above
        a millionth of the target's, where ``"fitc"`` would drive it to zero.
    target_transform : {"auto", "log", "exponential-normal", "yeo-johnson", "logit"} or None, default=None
        Monotone map of the target, before it is standardized, as of :class:`DeepGPRegressor`.
    init : {"kmeans", "random"}, default="kmeans"
        Where inducing inputs are: at centers of the training rows, or at random rows.
    train_inducing : bool, default=False
        Whether inducing inputs are optimized from there, with everything else. Worth its price for
        few inducing points.
    max_iter : int or None, default=None
        Largest number of iterations of L-BFGS; None stands for 200.
    max_time : float or None, default=None
        Seconds after which the search stops, with a warning. The lower bound and the diagnosis follow.
    tol : float, default=1e-7
        The search ends when an iteration improves the objective per row by less, relative to the
        larger of 1 and its size. With 0, `max_iter` iterations are made.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last fit, with its scaling and shape.
    standardize : bool, default=True
        Whether inputs and target are centered and scaled inside. The scaling of inputs is safe
        against outliers. Everything that comes out is in the units that went in.
    categorical_features : "from_dtype", array-like or None, default="from_dtype"
        Which columns hold categories: those of a frame whose dtype says so, or a list of names, positions or
        booleans, as in :class:`~sklearn.ensemble.HistGradientBoostingRegressor`. Text is categories, too, but
        where nearly all of a column are numbers, dates or times, as a warning says; an empty list keeps text.
        None takes categories of numbers for numbers.
    checkpoint : str, path-like, Checkpoint or None, default=None
        File in which the state of training is kept, or an existing directory in which every fit keeps a
        file of its own. If the file exists, ``fit`` with the same parameters and data goes on from there.
    device : str, default="auto"
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and so on; ``"auto"`` takes a GPU
        if there is one that is fast in double precision.
    n_threads : int or None, default=None
        Limit on the number of threads during ``fit`` and prediction.
    random_state : int, RandomState instance or None, default=None
        Determines where inducing inputs start; the rest is deterministic.
    verbose : int, default=0
        If positive, prints a line every 50 iterations.

    Attributes
    ----------
    kernels_ : list of Kernel
        The kernel with fitted hyperparameters, in units of the standardized inputs.
    likelihood_ : Gaussian
        With the fitted variance, in squared units of the target.
    inducing_inputs_ : list of ndarray
        The array of inducing inputs, in units of the inputs.
    members_ : list of Member
        The fitted model.
    n_iter_ : int
        Number of iterations made.
    loss_curve_ : list of float
        Negative objective per row after each iteration, in units of the standardized target.
    validation_scores_ : list of float
        Mean log-density of the rows given to ``fit`` as `X_val` and `y_val`, after each block of 50
        iterations and after the last one, in units of the standardized target; empty without them.
    lower_bound_ : float
        Lower bound on the log marginal likelihood that the posterior gives, in units of the target; for
        ``method="vfe"`` the objective itself.
    target_transform_ : str, None or list
        What was done to the target; a list if there are several outputs.
    device_ : str
        Where the model was trained.
    n_features_in_ : int
        Number of features seen during ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during ``fit``, if they are all strings.

    See Also
    --------
    SparseGPClassifier : The same for classes.
    DeepGPRegressor : Deep Gaussian processes; with one layer, a sparse one by minibatches.

    References
    ----------
    .. [1] M. Titsias (2009). Variational learning of inducing variables in sparse Gaussian
       processes. AISTATS 5, equation 9.

    .. [2] E. Snelson and Z. Ghahramani (2006). Sparse Gaussian processes using pseudo-inputs.
       Advances in Neural Information Processing Systems 18.

    .. [3] T. Bui, J. Yan and R. Turner (2017). A unifying framework for Gaussian process
       pseudo-point approximations using power expectation propagation. Journal of Machine Learning
       Research 18, equation 27.

    .. [4] M. Bauer, M. van der Wilk and C. Rasmussen (2016). Understanding probabilistic sparse
       Gaussian process approximations. Advances in Neural Information Processing Systems 29.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import SparseGPRegressor
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.sin(12 * X[:, 0]) + 0.1 * np.cos(1000 * X[:, 0])
    >>> model = SparseGPRegressor(n_inducing=20, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[0.25]], return_std=True)
    >>> mean.round(1), std.round(1)
    (array([0.1]), array([0.1]))
    """

    _likelihoods = {"gaussian": Gaussian}
    _parameter_constraints = {
        **BaseSparseGP._parameter_constraints,
        **TARGET_TRANSFORM,
        "likelihood": [StrOptions({"gaussian"}), Gaussian],
        "method": [StrOptions({"vfe", "fitc", "pep"})],
        "alpha": [Interval(Real, 0, 1, closed="right")],
    }

    def __init__(
        self,
        n_inducing: int | None = None,
        *,
        kernel: str | Kernel = "squared_exponential",
        method: str = "vfe",
        alpha: float = 0.5,
        likelihood: str | Gaussian = "gaussian",
        target_transform: str | None = None,
        init: str = "kmeans",
        train_inducing: bool = False,
        max_iter: int | None = None,
        max_time: float | None = None,
        tol: float = 1e-7,
        warm_start: bool = False,
        standardize: bool = True,
        categorical_features: str | Sequence | None = "from_dtype",
        checkpoint: str | os.PathLike | Checkpoint | None = None,
        device: str = "auto",
        n_threads: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        self.n_inducing, self.kernel, self.method = n_inducing, kernel, method
        self.alpha, self.likelihood, self.target_transform = alpha, likelihood, target_transform
        self.init, self.train_inducing, self.max_iter = init, train_inducing, max_iter
        self.max_time, self.tol, self.warm_start = max_time, tol, warm_start
        self.standardize, self.categorical_features = standardize, categorical_features
        self.checkpoint, self.device, self.n_threads = checkpoint, device, n_threads
        self.random_state, self.verbose = random_state, verbose

    def _scheme(self):
        if self.method == "vfe":
            return super()._scheme()
        alpha = 1.0 if self.method == "fitc" else self.alpha
        return PowerEP(alpha, self.train_inducing, self.tol)


class SparseGPClassifier(ClassificationMixin, BaseSparseGP):
    """Sparse Gaussian process classification on a bound of all rows.

    The model has one layer, and L-BFGS chooses the kernel's hyperparameters. For each of its trials, the
    Gaussian posterior at the inducing inputs is the one with the highest variational bound on the log
    marginal likelihood [1]_. Natural-gradient steps find it [2]_. With the
    likelihoods offered here the lower bound is concave in
    the posterior [3]_: there is one optimum, and it is reached whatever the start. The
    alternative, power expectation propagation with a factor for each row [4]_, lacks these properties. Its
    fixed point need not exist or be unique, and its energy is no lower bound. Its factors for several
    classes are not Gaussians of one variable. For two classes the two differ little.

    Parameters
    ----------
    n_inducing : int or None, default=None
        Inducing points, at most one for each row. None stands for 100.
    kernel : str or Kernel, default="squared_exponential"
        ``"squared_exponential"``, ``"matern32"``, ``"matern52"``, ``"rational_quadratic"``,
        ``"arc_cosine"``, ``"linear"``, ``"anova"``, or an object of :mod:`skdgp.gp.kernels`, also sums and
        products of these. Lengthscales are in units of the standardized inputs. ``"auto"`` is the
        squared exponential, too.
    likelihood : str or Likelihood, default="auto"
        ``"probit"`` or ``"logit"`` for two classes, ``"softmax"``, or an object of
        :mod:`skdgp.gp.likelihoods`. ``"auto"`` is probit for two classes and softmax for more, with
        a latent function for each class.
    init : {"kmeans", "random"}, default="kmeans"
        Where inducing inputs are: at centers of the training rows, or at random rows.
    train_inducing : bool, default=False
        Whether inducing inputs are optimized from there, with everything else.
    max_iter : int or None, default=None
        Largest number of iterations of L-BFGS; None stands for 200.
    max_time : float or None, default=None
        Seconds after which the search stops, with a warning. The lower bound and the diagnosis follow.
    tol : float, default=1e-6
        The search ends when an iteration improves the lower bound per row by less, relative to the larger
        of 1 and its size. With 0, `max_iter` iterations are made.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last fit, with its scaling and shape.
    standardize : bool, default=True
        Whether inputs are centered and scaled inside, safe against outliers.
    categorical_features : "from_dtype", array-like or None, default="from_dtype"
        Which columns hold categories: those of a frame whose dtype says so, or a list of names, positions or
        booleans, as in :class:`~sklearn.ensemble.HistGradientBoostingRegressor`. Text is categories, too, but
        where nearly all of a column are numbers, dates or times, as a warning says; an empty list keeps text.
        None takes categories of numbers for numbers.
    checkpoint : str, path-like, Checkpoint or None, default=None
        File in which the state of training is kept, or an existing directory in which every fit keeps a
        file of its own. If the file exists, ``fit`` with the same parameters and data goes on from there.
    device : str, default="auto"
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and so on; ``"auto"`` takes a GPU
        if there is one that is fast in double precision.
    n_threads : int or None, default=None
        Limit on the number of threads during ``fit`` and prediction.
    random_state : int, RandomState instance or None, default=None
        Determines where inducing inputs start; the rest is deterministic.
    verbose : int, default=0
        If positive, prints a line every 50 iterations.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, also those of rows of weight zero.
    kernels_ : list of Kernel
        The kernel with fitted hyperparameters, in units of the standardized inputs.
    likelihood_ : Likelihood
    inducing_inputs_ : list of ndarray
        The array of inducing inputs, in units of the inputs.
    members_ : list of Member
        The fitted model.
    n_iter_ : int
        Number of iterations made.
    loss_curve_ : list of float
        Negative lower bound per row after each iteration.
    validation_scores_ : list of float
        Mean log-probability of the rows given to ``fit`` as `X_val` and `y_val`, after each block of 50
        iterations and after the last one; empty without them.
    lower_bound_ : float
        Lower bound on the log marginal likelihood of the training rows.
    device_ : str
        Where the model was trained.
    n_features_in_ : int
        Number of features seen during ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during ``fit``, if they are all strings.

    See Also
    --------
    SparseGPRegressor : The same for regression.
    DeepGPClassifier : Deep Gaussian processes; with one layer, a sparse one by minibatches.

    References
    ----------
    .. [1] J. Hensman, A. Matthews and Z. Ghahramani (2015). Scalable variational Gaussian process
       classification. AISTATS 18.

    .. [2] M. Khan and W. Lin (2017). Conjugate-computation variational inference: converting
       variational inference in non-conjugate models to inferences in conjugate models. AISTATS 20.

    .. [3] E. Challis and D. Barber (2013). Gaussian Kullback-Leibler approximate inference. Journal
       of Machine Learning Research 14.

    .. [4] T. Bui, J. Yan and R. Turner (2017). A unifying framework for Gaussian process
       pseudo-point approximations using power expectation propagation. Journal of Machine Learning
       Research 18.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdgp import SparseGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SparseGPClassifier(n_inducing=30, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:1]).shape
    (1, 3)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _likelihoods = {name: CLASSIFICATION[name] for name in ("probit", "logit", "softmax")}
    _n_inducing = 100

    def __init__(
        self,
        n_inducing: int | None = None,
        *,
        kernel: str | Kernel = "squared_exponential",
        likelihood: str | Likelihood = "auto",
        init: str = "kmeans",
        train_inducing: bool = False,
        max_iter: int | None = None,
        max_time: float | None = None,
        tol: float = 1e-6,
        warm_start: bool = False,
        standardize: bool = True,
        categorical_features: str | Sequence | None = "from_dtype",
        checkpoint: str | os.PathLike | Checkpoint | None = None,
        device: str = "auto",
        n_threads: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        self.n_inducing, self.kernel, self.likelihood = n_inducing, kernel, likelihood
        self.init, self.train_inducing, self.max_iter = init, train_inducing, max_iter
        self.max_time, self.tol, self.warm_start = max_time, tol, warm_start
        self.standardize, self.categorical_features = standardize, categorical_features
        self.checkpoint, self.device, self.n_threads = checkpoint, device, n_threads
        self.random_state, self.verbose = random_state, verbose
