"""Estimators of exact, nearest-neighbor and collapsed processes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.gaussian_process.kernels import Matern as SkMatern
from sklearn.gaussian_process.kernels import RationalQuadratic as SkRationalQuadratic
from toys import rows

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.gp.kernels import Anova, Matern, RationalQuadratic, SquaredExponential
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian
from skdgp.inference import CollapsedVI, Exact, Vecchia
from skdgp.inference.collapsed import CollapsedGP
from skdgp.inference.exact import ExactGP


def shallow(inference, **settings):
    return DeepGPRegressor(1, inference=inference, random_state=0, **settings)


@pytest.mark.parametrize(
    ("inference", "kernel", "theirs"),
    [
        ("exact", Matern(1.5, 0.8, 1.4, ard=False), SkMatern(0.8, "fixed", nu=1.5)),
        ("collapsed", SquaredExponential([0.7, 1.3], 1.4), RBF([0.7, 1.3], "fixed")),
        (
            Vecchia(100),
            RationalQuadratic(0.7, 0.8, 1.4, ard=False),
            SkRationalQuadratic(0.8, 0.7, "fixed", "fixed"),
        ),
    ],
)
def test_known_numbers_are_the_process_of_scikit_learn(inference, kernel, theirs):
    """Of Vecchia, with all rows as neighbors."""
    X, y = rows()
    theirs = ConstantKernel(1.4, "fixed") * theirs + WhiteKernel(0.1, "fixed")
    theirs = GaussianProcessRegressor(theirs, optimizer=None).fit(X, y[:, 0])
    noise = Gaussian(variance=0.1, trainable=False)
    settings = {"kernel": kernel.with_values(trainable=False), "likelihood": noise}
    model = shallow(inference, standardize=False, **settings).fit(X, y[:, 0])
    x = np.vstack([X, X + 0.1, X + 3.0])
    mean, std = model.predict(x, return_std=True)
    expected = theirs.predict(x, return_std=True)
    near = isinstance(inference, Vecchia)
    assert_allclose(mean, expected[0], atol=1e-8 if near else 1e-6)
    assert_allclose(std, expected[1], atol=1e-8 if near else 1e-6)
    if not near:
        evidence = theirs.log_marginal_likelihood_value_ / len(X)
        assert_allclose(model.loss_curve_[-1], -evidence, rtol=1e-6)
    cov = model.predict(x[:5], return_cov=True)[1]
    assert_allclose(np.diag(cov), std[:5] ** 2, rtol=1e-9)


def check_finite(model, X, y):
    far = np.vstack([X, X + 1.0, 1e3 * X + 1.0])
    mean, std = model.predict(far, return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0.0).all()
    assert np.isfinite(model.sample_y(far, 3)).all()
    assert np.isfinite(model.log_predictive_density(X, y)).all()
    assert np.isfinite(model.loss_curve_).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("inference", "n", "k", "settings"),
    [
        ("exact", 1, 2, {"likelihood": "gaussian"}),
        ("exact", 1, 1, {"likelihood": "heteroscedastic"}),
        ("exact", 2, 2, {"likelihood": "heteroscedastic"}),
        ("exact", 2, 1, {"likelihood": "gaussian"}),
        ("exact", 5, 1, {"likelihood": "heteroscedastic"}),
        ("vecchia", 1, 2, {"max_iter": 5}),
        ("vecchia", 2, 2, {"max_iter": 5}),
        ("vecchia", 5, 2, {"max_iter": 5}),
        (CollapsedVI(n_draws=2), 1, 1, {"n_layers": 2, "max_iter": 40, "mean": "linear"}),
        (CollapsedVI(n_draws=2), 2, 1, {"n_layers": 2, "max_iter": 40, "mean": "zero"}),
        (CollapsedVI(n_draws=2), 3, 1, {"n_layers": 2, "max_iter": 40, "mean": "linear"}),
    ],
)
def test_few_rows(inference, n, k, settings):
    X, y = rows(n, k=k)
    y = y if k > 1 else y[:, 0]
    check_finite(shallow(inference).set_params(**settings).fit(X, y), X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("likelihood", "target"),
    [
        ("gaussian", "constant"),
        ("heteroscedastic", "constant"),
        ("gaussian", "linear"),
        ("heteroscedastic", "smooth"),
        ("gaussian", "step"),
        ("heteroscedastic", "outlier"),
    ],
)
def test_special_targets(likelihood, target):
    X = rows(60)[0]
    y = {
        "constant": np.full(60, 3.0),
        "linear": 2.0 * X[:, 0] - X[:, 1],
        "smooth": np.sin(X[:, 0]) * X[:, 1],
        "step": np.sign(X[:, 0]),
        "outlier": np.where(np.arange(60) == 7, 1e6, X[:, 0]),
    }[target]
    model = shallow("exact", likelihood=likelihood).fit(X, y)
    check_finite(model, X, y)
    if target in ("linear", "smooth"):  # free of noise
        assert model.score(X, y) > 0.999
        assert (model.predict(X, return_std=True)[1] < 0.05 * y.std()).all()
    if target == "constant":
        assert_allclose(model.predict(X), 3.0)


def test_rows_that_are_all_in_one_place():
    X, y = np.ones((20, 2)), np.random.default_rng(0).standard_normal(20)
    model = shallow("exact").fit(X, y)
    check_finite(model, X, y)
    mean, std = model.predict(X[:1], return_std=True)
    assert_allclose(mean, y.mean(), atol=0.1)
    assert_allclose(std, y.std(), rtol=0.15)


@pytest.mark.parametrize(
    ("inference", "kernel", "likelihood"),
    [
        ("exact", Anova, HeteroscedasticGaussian),
        ("vecchia", RationalQuadratic, HeteroscedasticGaussian),
    ],
)
def test_rows_are_the_inducing_inputs(inference, kernel, likelihood):
    X, y = rows()
    X[20:30] = X[19]  # of the same places, in another order
    model = shallow(inference, max_iter=5).fit(X, y[:, 0])
    found = (np.unique(places.round(9), axis=0) for places in (model.inducing_inputs_[0], X))
    assert_allclose(*found)
    assert isinstance(model.kernels_[0], kernel) and isinstance(model.likelihood_, likelihood)
    assert not hasattr(model, "lower_bound_")


@pytest.mark.parametrize(("inference", "n"), [(Exact(25), 600), ("vecchia", 1000)])
def test_local_scale_follows_noise_that_changes(inference, n):
    """Noise of one and of a tenth, side by side; 1,000 rows have 25 neighbors each."""
    rng = np.random.default_rng(0)

    def draw():
        X = rng.uniform(-1.0, 1.0, (n, 1))
        return X, np.where(X[:, 0] > 0.0, 1.0, 0.1) * rng.standard_normal(n)

    X, y = draw()
    model, plain = (
        shallow(inference, likelihood=name).fit(X, y) for name in ("heteroscedastic", "gaussian")
    )
    std = model.predict(np.array([[-0.5], [0.5]]), return_std=True)[1]
    assert_allclose(std, [0.1, 1.0], rtol=0.4)
    for x, target in ((X, y), draw()):
        gain = model.log_predictive_density(x, target) - plain.log_predictive_density(x, target)
        assert gain.mean() > 0.4  # 1/2 log(.505) + log(10)/2 = .81 for known sizes


@pytest.mark.parametrize(
    ("inference", "kernel", "most"),
    [
        ("exact", "anova", 0.05),
        ("exact", "rational_quadratic", 0.05),
        ("vecchia", "auto", 0.1),
    ],
)
def test_many_columns_do_not_overfit_few_rows(inference, kernel, most):
    """Of targets that are noise, nothing is learned."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1080, 40)), rng.standard_normal(1080)
    model = shallow(inference, kernel=kernel).fit(X[:80], y[:80])
    truth = norm.logpdf(y[80:]).mean()
    assert model.log_predictive_density(X[80:], y[80:]).mean() > truth - most


# Copies of rows


@pytest.mark.parametrize(
    ("what", "inference"), [("targets", "exact"), ("inputs", "exact"), ("inputs", "vecchia")]
)
def test_near_copies_are_copies(what, inference):
    """Records that are there up to three times, with differences of rounding and more."""
    rng = np.random.default_rng(0)
    X, x = rng.uniform(-2.5, 2.5, (40, 2)), rng.uniform(-2.5, 2.5, (200, 2))
    y, target = (
        10.0 + 5.0 * (np.sin(2.0 * A[:, 0]) + 0.5 * A[:, 1] + 0.3 * rng.standard_t(4, len(A)))
        for A in (X, x)
    )
    copies, scores, widths = np.repeat(np.arange(40), rng.integers(1, 4, 40)), [], []
    for eps in (0.0, 1e-12, 1e-6, 1e-3):
        A, b = X[copies], y[copies]
        if what == "inputs":
            A = A + eps * rng.standard_normal(A.shape)
        else:
            b = b + eps * rng.standard_normal(b.shape)
        few = {"max_iter": 40} if inference == "vecchia" else {}
        model = shallow(inference, **few).fit(A, b)
        scores.append(model.log_predictive_density(x, target).mean())
        widths.append(np.median(model.predict(x, return_std=True)[1]))
    assert_allclose(scores[1], scores[0], atol=1e-3)
    # near errors are counted as often as they are there
    assert_allclose(scores, scores[0], atol=0.15)
    assert_allclose(widths[1], widths[0], rtol=1e-3)
    assert scores[0] > -3.0


@pytest.mark.parametrize("inference", ["exact", "vecchia"])
def test_weights_of_very_different_size_at_a_place(inference):
    X, y = rows()
    X, y = np.repeat(X, 2, 0), np.repeat(y[:, 0], 2)
    y[1::2] += 0.1
    few = {"max_iter": 20} if inference == "vecchia" else {}
    model = shallow(inference, **few).fit(X, y, sample_weight=np.tile([1.0, 1e-17], 40))
    assert np.isfinite(model.loss_curve_).all()
    assert model.score(X[::2], y[::2]) > 0.5
    count = model.members_[0].arrays["local_scale.log_count"]
    assert count != np.log(10.0)  # the local scale was learned


# Refusals


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"inference": Exact(), "n_layers": 2}, "Exact is for shallow models; set n_layers=1"),
        ({"inference": "exact", "likelihood": "student_t"}, "for StudentT use inference='dsvi'"),
        ({"inference": "exact", "likelihood": "poisson"}, "for Poisson use inference='dsvi'"),
        ({"inference": Exact(True)}, "n_neighbors of Exact must be an int in the range .*; got Tr"),
        ({"inference": "exact", "n_inducing": 7}, "n_inducing means nothing to Exact"),
        ({"inference": "exact", "init": "random"}, "init means nothing to Exact"),
        ({"inference": "exact", "learning_rate": 0.1}, "learning_rate means nothing to Exact"),
        ({"inference": "vecchia", "n_layers": 2}, "n_layers=1"),
        ({"inference": "vecchia", "likelihood": "student_t"}, "for StudentT use inference='dsvi'"),
        ({"inference": "vecchia", "n_inducing": 7}, "n_inducing means nothing to Vecchia"),
        ({"inference": "vecchia", "init": "random"}, "init means nothing to Vecchia"),
        ({"inference": Vecchia(4, full_scale=5)}, "needs start='subset'"),
        ({"inference": Vecchia(4, "subset", 5), "k": 2}, "one target of numbers"),
        ({"inference": CollapsedVI(n_draws=0)}, "n_draws of CollapsedVI must be"),
        ({"inference": "collapsed", "likelihood": "student_t"}, "is for Gaussian noise"),
        ({"inference": "collapsed", "batch_size": 10}, "batch_size means nothing to CollapsedVI"),
        ({"inference": "collapsed", "init": "greedy"}, "init means nothing to CollapsedVI"),
        ({"inference": "vfe", "n_layers": 2}, "VFE is for shallow models; set n_layers=1"),
        (
            {"inference": "vfe", "likelihood": "student_t"},
            "probit, logit and softmax; for StudentT use inference='dsvi'",
        ),
        ({"inference": "vfe", "learning_rate": 0.1}, "learning_rate means nothing to VFE"),
        ({"inference": "vfe", "batch_size": 10}, "batch_size means nothing to VFE"),
        ({"inference": "vfe", "dtype": "float32"}, "dtype means nothing to VFE"),
    ],
)
def test_settings_that_make_no_sense(settings, match):
    settings = settings.copy()
    X, y = rows(30, k=settings.pop("k", 1))
    model = shallow(None).set_params(**settings)
    with pytest.raises(ValueError, match=match):
        model.fit(X, np.round(np.abs(y)))


@pytest.mark.parametrize(
    ("inference", "match"),
    [
        ("pep", "PowerEP is for Gaussian noise; for Bernoulli use inference='dsvi'"),
        (Vecchia(8, start="subset"), "is for numbers"),
        (Vecchia(4, "subset", 5), "for numbers"),
    ],
)
def test_schemes_that_are_not_for_classes(inference, match):
    X, y = rows(40)
    with pytest.raises(ValueError, match=match):
        DeepGPClassifier(1, inference=inference, random_state=0).fit(X, y[:, 0] > 0.0)


@pytest.mark.parametrize(
    ("inference", "model", "match"),
    [
        ("exact", ExactGP, "of all distinct rows, of at most 20; got 22"),
        ("collapsed", CollapsedGP, "at most 20; got 22"),
    ],
)
def test_too_many_rows_are_refused(inference, model, match, monkeypatch):
    monkeypatch.setattr(model, "_most_rows", 20)
    X, y = rows(42)
    X[:20] = X[20:40]
    model = shallow(inference, max_iter=2)
    with pytest.raises(ValueError, match=match):
        model.fit(X, y[:, 0])
    model.fit(X[:40], y[:40, 0])
