"""Columns that were constant in training, and are not afterwards."""

import warnings

import numpy as np
import pytest

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.gp.kernels import Anova, Linear, SquaredExponential
from skdgp.inference import SCHEMES, StructuredVI
from skdgp.preprocessing.constant_columns import ConstantColumns
from skdgp.preprocessing.scaling import InputScaler

FEW = {"max_iter": 15, "random_state": 0}
CONSTANT = 7.3


def problem(n=40, n_outputs=1):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    X[:, 1] = CONSTANT
    X[:, 4] = 0.0
    y = np.sin(X[:, [0]]) + X[:, 2:3] + 0.1 * rng.normal(size=(n, n_outputs))
    y = 100.0 * y * (1.0 + np.arange(n_outputs))
    return X, y[:, 0] if n_outputs == 1 else y


def changed(X, column=1, value=CONSTANT + 1e-3):
    X = X.copy()
    X[:, column] = value
    return X


def fitted(inference="dsvi", **settings):
    X, y = problem()
    model = DeepGPRegressor(inference=inference, **{"n_layers": 1, **FEW, **settings})
    return model.fit(X, y), X, y


def row_scaler(X):
    return InputScaler().fit(X, np.ones(len(X)), np.random.RandomState(0))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCHEMES)
def test_each_changed_column_adds_its_share_of_the_variance(name):
    model, X, y = fitted(name)
    share, near = 2.0 / 5 * y.var(), 1.01 * X[:6]
    near[:, 1] = CONSTANT
    for latent in (False, True):
        mean, std = model.predict(near, return_std=True, latent=latent)
        one = model.predict(changed(near), return_std=True, latent=latent)
        two = model.predict(changed(changed(near), 4, -1.0), return_std=True, latent=latent)
        np.testing.assert_allclose(one[0], mean, rtol=1e-9)
        np.testing.assert_allclose(one[1] ** 2 - std**2, share, rtol=1e-6)
        np.testing.assert_allclose(two[1] ** 2 - std**2, 2.0 * share, rtol=1e-6)
    lower, upper = model.predict_interval(changed(near)).T
    assert np.all(upper - lower > np.diff(model.predict_interval(near))[:, 0])


@pytest.mark.parametrize("name", ["dsvi", "exact"])
@pytest.mark.parametrize("n_features", [1, 2])
def test_no_column_varies(name, n_features):
    y = problem()[1]
    X = np.full((len(y), n_features), CONSTANT)
    model = DeepGPRegressor(inference=name, n_layers=1, **FEW).fit(X, y)
    mean, std = model.predict(X[:1], return_std=True)
    for value in (CONSTANT - 1e-3, 1e6):
        with pytest.warns(UserWarning, match=rf"Columns {', '.join('01'[:n_features])} of X were"):
            far = model.predict(np.full((1, n_features), value), return_std=True)
        np.testing.assert_allclose(far[0], mean, rtol=1e-12)
        np.testing.assert_allclose(far[1] ** 2 - std**2, 2.0 * y.var(), rtol=1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("settings", [{"inference": "exact"}, {"inference": "dsvi", "n_layers": 2}])
def test_covariances_are_those_of_draws(settings):
    """Rows share the effect of a value that they have in common."""
    model, X, y = fitted(**settings)
    rows = np.concatenate([X[:2], changed(X[:2]), changed(X[:1], 1, 9.0), changed(X[:1], 4, 1.0)])
    rows[3, 4] = 1.0  # two values; one in common with row 2, the other with row 5
    one, other = np.array([0, 0, 1, 1, 0, 0.0]), np.array([0, 0, 0, 1, 0, 1.0])
    expected = np.outer(one, one) + np.outer(other, other) + np.diag([0, 0, 0, 0, 1, 0.0])
    same = X[[0, 1, 0, 1, 0, 0]]
    more = 2.0 / 5 * y.var() * expected
    draws, before = (model.sample_y(x, 400, latent=True) for x in (rows, same))
    np.testing.assert_allclose(
        (draws - before).mean(1), 0.0, atol=4.0 * more.max() ** 0.5 / 400**0.5
    )
    np.testing.assert_allclose(
        np.cov(draws - before, bias=True), more, atol=4.0 * more.max() * (2.0 / 400) ** 0.5
    )
    _, cov = model.predict(rows, return_cov=True, latent=True)
    if settings["inference"] == "exact":
        _, without = model.predict(same, return_cov=True, latent=True)
        np.testing.assert_allclose(cov - without, more, atol=1e-6 * more.max())
    else:
        error = 4.0 * cov.max() * (2.0 / 1000) ** 0.5  # it is that of draws
        np.testing.assert_allclose(cov, np.cov(draws), atol=error)


def test_there_is_a_warning():
    model, X, _ = fitted()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X)
    with pytest.warns(UserWarning, match="Columns 1, 4 of X were constant in fit") as record:
        model.predict(changed(changed(X), 4, 1.0))
    assert record[0].filename == __file__


@pytest.mark.filterwarnings("ignore")
def test_functions_are_functions():
    model, X, _ = fitted(n_layers=2)
    rows = np.concatenate([changed(X), changed(X, 1, 9.0)])
    together = model.sample_y(rows, 3, latent=True)
    apart = [model.sample_y(part, 3, latent=True) for part in (rows[30:50], rows[:30], rows[50:])]
    np.testing.assert_allclose(together[30:50], apart[0], rtol=1e-9)
    np.testing.assert_allclose(together, np.concatenate([apart[i] for i in (1, 0, 2)]), rtol=1e-9)
    assert not np.allclose(together, model.sample_y(rows, 3, latent=True, random_state=1))


@pytest.mark.filterwarnings("ignore")
def test_widened_effects():
    """What no row tells of is multiplied by all of the factor that held-out splits ask for."""
    model, X, y = fitted(StructuredVI(n_inflation_splits=1), n_layers=2, n_inducing=10)
    model.members_[0].arrays["variance_inflation.moments"] = np.array([1.0, 0.5])
    model.members_[0].release()
    factors = model.members_[0].model("cpu").variance_inflation.factors().numpy()
    assert factors.max() > 2.0 * factors.min()
    std, more = (model.predict(x, return_std=True)[1] for x in (X, changed(X)))
    share = 2.0 / 5 * y.var() * factors.mean()
    np.testing.assert_allclose(more**2 - std**2, share, rtol=1e-6)
    draws, before = (model.sample_y(x[:5], 800, latent=True) for x in (changed(X), X))
    # the fourth moment of a mixture, for the standard error of a variance
    spread = np.sqrt((3.0 * np.mean(factors**2) / factors.mean() ** 2 - 1.0) / 800)
    np.testing.assert_allclose((draws - before).var(1), share, rtol=4.0 * spread)
    moments = (draws - before)[0] ** 4
    kurtosis = moments.mean() / share**2
    expected = 3.0 * np.mean(factors**2) / factors.mean() ** 2
    np.testing.assert_allclose(kurtosis, expected, atol=5.0 * moments.std() / share**2 / 800**0.5)


@pytest.mark.filterwarnings("ignore")
def test_mixtures_have_it_in_every_member():
    X, y = problem()
    model = DeepGPRegressor(**FEW).fit(X, y)
    assert len(model.members_) > 2
    weights, spreads = zip(
        *((member.mixture_weight, member.dispersion) for member in model.members_)
    )
    share = 2.0 / 5 * y.var() * np.average(np.square(spreads), weights=weights)
    std, more = (model.predict(x, return_std=True)[1] for x in (X[:5], changed(X[:5])))
    np.testing.assert_allclose(more**2 - std**2, share, rtol=1e-5)
    density, without = (model.log_predictive_density(x[:5], y[:5]) for x in (changed(X), X))
    assert np.all(density < without)  # of rows that are near the curve


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "settings", [{}, {"likelihood": "poisson"}, {"likelihood": "heteroscedastic"}]
)
def test_outputs_and_likelihoods(settings):
    X, y = problem(n_outputs=2)
    y = np.abs(np.round(y / 50.0)) if "poisson" in settings.values() else y
    model = DeepGPRegressor(inference="dsvi", **settings, **FEW).fit(X, y)
    unit = 1.0 if "poisson" in settings.values() else y.var(0)  # of a logarithm
    std, more = (model.predict(x, return_std=True, latent=True)[1] for x in (X, changed(X)))
    np.testing.assert_allclose(
        more**2 - std**2, np.broadcast_to(2.0 / 5 * unit, y.shape), rtol=1e-6
    )
    draws, before = (model.sample_y(x[:4], 3, latent=True) for x in (changed(X), X))
    effects = draws - before
    np.testing.assert_allclose(effects, np.broadcast_to(effects[:1], effects.shape), rtol=1e-6)
    assert not np.allclose(effects[0, 0], effects[0, 1])  # outputs have effects of their own


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_are_less_certain(n_classes):
    X, y = problem()
    classes = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    model = DeepGPClassifier(inference="dsvi", max_iter=100, random_state=0).fit(X, classes)
    sure, less = (model.predict_proba(x).max(1) for x in (X, changed(X)))
    assert np.all(less < sure + 1e-9) and less.mean() < sure.mean() - 0.01


def test_what_is_no_change():
    model, X, _ = fitted()
    std = model.predict(X, return_std=True)[1]
    rounded = X.astype(np.float32).astype(np.float64)[:, 1] - X[:, 1]
    assert np.any(rounded != 0.0)
    as_float = model.predict(X.astype(np.float32), return_std=True)[1]
    np.testing.assert_allclose(as_float, std, rtol=1e-3)
    X, y = problem()  # columns pass as they are, and models see them
    model = DeepGPRegressor(inference="dsvi", n_layers=1, standardize=False, **FEW).fit(X, y)
    assert not ConstantColumns(changed(X), model._x_scaler)
    rows = np.array([[2.0, 1.0, 1.0], [1.0, 2.0, 2.0]])
    constant = ConstantColumns(rows, row_scaler(np.ones((10, 3))))
    np.testing.assert_allclose(constant.variances(), [2.0 / 3.0, 4.0 / 3.0])


@pytest.mark.parametrize("constant", [0.0, 1.4e-17, -5e-324])
def test_rounding_errors_around_zero_are_no_change(constant):
    X = np.column_stack([problem()[0][:, :3], np.full(40, constant)])
    scaler = row_scaler(X)
    assert 3 in scaler.constant_columns()[0]
    for value in (0.0, 1e-17, -3e-16, 5e-324):
        assert not ConstantColumns(changed(X, 3, value), scaler)
    assert ConstantColumns(changed(X, 3, 1e-12), scaler)
    scaler = row_scaler(np.zeros((9, 2)))
    assert not ConstantColumns(np.full((2, 2), 1e-17), scaler)
    assert ConstantColumns(np.full((2, 2), 1e-12), scaler)


def test_draws_add_up():
    """Effects of columns are independent; a value in two columns has two effects."""
    scaler = row_scaler(np.column_stack([np.arange(9.0), np.zeros((9, 2))]))
    rows = np.array([[0.0, 5.0, 0.0], [0.0, 0.0, 5.0], [0.0, 5.0, 5.0], [1.0, 0.0, 0.0]])
    constant = ConstantColumns(rows, scaler)
    draws = constant.draws(20_000, 1, seed=3)[..., 0]
    np.testing.assert_allclose(draws[:, 2], draws[:, 0] + draws[:, 1], atol=1e-12)
    np.testing.assert_allclose(draws[:, 3], 0.0)
    error = 4.0 * constant.covariance().max() * (2.0 / 20_000) ** 0.5
    np.testing.assert_allclose(np.cov(draws.T), constant.covariance(), atol=error)
    np.testing.assert_allclose(constant.covariance().diagonal(), constant.variances())


@pytest.mark.parametrize(
    ("kernel", "left"),
    [
        (SquaredExponential([1.0, 9.0, 2.0, 0.5, 9.0]), SquaredExponential([1.0, 2.0, 0.5])),
        (
            Anova(1.5, [1.0, 9.0, 2.0, 0.5, 9.0], (0.3, 9.0, 0.2, 0.1, 9.0))
            + Linear(np.arange(1.0, 6.0)),
            Anova(1.5, [1.0, 2.0, 0.5], [0.3, 0.2, 0.1]) + Linear([1.0, 3.0, 4.0]),
        ),
    ],
    ids=["one", "sum"],
)
@pytest.mark.parametrize("n_layers", [1, 2])
def test_kernels_with_numbers_for_all_columns(kernel, left, n_layers):
    """Columns may be constant in a fold only; those for the columns that are left do as well."""
    X, y = problem()
    predictions = []
    for given, rows in ((kernel, X), (left, X), (left, X[:, [0, 2, 3]])):
        model = DeepGPRegressor(n_layers, kernel=given, inference="dsvi", **FEW).fit(rows, y)
        predictions.append(model.predict(rows))
    np.testing.assert_array_equal(predictions[0], predictions[1])
    rounding = 1e-7 if n_layers == 1 else 1e-3  # which fifteen steps of two layers amplify
    np.testing.assert_allclose(predictions[0], predictions[2], rtol=rounding)
    with pytest.raises(ValueError, match=r"has shape \(4,\), but the layer has 3 inputs"):
        DeepGPRegressor(kernel=SquaredExponential([1.0] * 4), inference="dsvi", **FEW).fit(X, y)
