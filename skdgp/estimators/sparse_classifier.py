"""Sparse Gaussian process classification on all rows at once."""

from dataclasses import dataclass

from ..gp.likelihoods import CLASSIFICATION
from .classification import ClassificationMixin
from .sparse import BaseSparseGP


@dataclass(eq=False, repr=False, kw_only=True)
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
        Name of a kernel or an object of :mod:`skdgp.gp.kernels`, as of :class:`SparseGPRegressor`.
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
        Relative improvement of the lower bound that ends the search, as of :class:`SparseGPRegressor`.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last fit, with its scaling and shape.
    standardize : bool, default=True
        Whether inputs are centered and scaled inside, safe against outliers.
    categorical_features : "from_dtype", array-like or None, default="from_dtype"
        Which columns hold categories, as of :class:`DeepGPRegressor`.
    checkpoint : str, path-like, Checkpoint or None, default=None
        File, or directory of files, in which the state of training is kept, as of :class:`DeepGPRegressor`.
    device : str, default="auto"
        Where the model is trained, as of :class:`DeepGPRegressor`.
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

    tol: float = 1e-6

    _likelihoods = {name: CLASSIFICATION[name] for name in ("probit", "logit", "softmax")}
    _n_inducing = 100
