"""Error bars inflated by what splits of the training rows tell."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inference import StructuredVI
from skdgp.inference.dsvi import DeepSparseGP
from skdgp.inference.structured.structured import StructuredGP
from skdgp.training import Checkpoint

FEW = {"n_layers": 2, "max_iter": 15, "n_inducing": 8, "n_predict_draws": 8, "random_state": 0}
FAR = np.array([[-4.0, 4.0], [3.0, 0.0], [6.0, 6.0]])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(80, 2))
    return X, np.sinh(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(80)


def regressor(n_inflation_splits=2, **settings):
    scheme = StructuredVI(n_inflation_splits=n_inflation_splits, n_warmup=3)
    return DeepGPRegressor(inference=scheme, **{**FEW, **settings})


def moments(model):
    return model.members_[0].arrays["variance_inflation.moments"]


def std(model, X=FAR, **settings):
    return model.predict(X, return_std=True, **settings)[1]


def test_the_model_is_the_same_and_only_its_error_bars_are_wider(rows):
    plain, wide = regressor(0).fit(*rows), regressor().fit(*rows)
    np.testing.assert_array_equal(plain.loss_curve_, wide.loss_curve_)
    assert moments(wide)[1] > 0.0 and "variance_inflation.moments" not in plain.members_[0].arrays
    np.testing.assert_allclose(wide.predict(FAR), plain.predict(FAR), rtol=1e-9)
    assert (std(wide) > std(plain)).all()
    assert wide.lower_bound_ == plain.lower_bound_
    X = rows[0]
    apart = np.concatenate([std(wide, X[:7]), std(wide, X[7:20])])
    np.testing.assert_allclose(apart, std(wide, X[:20]), rtol=1e-9)
    lower, upper = wide.predict_interval(FAR, 0.95).T
    grid = np.linspace(-600, 600, 8001)
    density = np.exp(wide.log_predictive_density(np.tile(FAR[0], (len(grid), 1)), grid))
    assert density.sum() * 0.15 == pytest.approx(1.0, abs=1e-3)
    inside = (grid > lower[0]) & (grid < upper[0])
    assert density[inside].sum() * 0.15 == pytest.approx(0.95, abs=0.01)


def test_function_draws_scatter_as_predicted(rows):
    model = regressor(n_layers=1).fit(*rows)
    f = model.sample_y(FAR, 4000, latent=True)
    np.testing.assert_allclose(f.std(1), std(model, latent=True), rtol=0.15)


def test_a_function_that_grows_needs_wide_error_bars():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, (150, 1))
    y = np.sinh(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(150)
    T = np.concatenate([np.linspace(-3.0, -2.2, 20), np.linspace(2.2, 3.0, 20)])[:, None]
    settings = {"n_layers": 1, "max_iter": 100, "n_inducing": 15}
    plain, wide = (regressor(n, **settings).fit(X, y) for n in (0, 2))
    gain = wide.log_predictive_density(T, np.sinh(2.0 * T[:, 0]))
    gain -= plain.log_predictive_density(T, np.sinh(2.0 * T[:, 0]))
    assert gain.mean() > 1.0


def test_a_weight_of_two_is_the_row_twice(rows):
    X, y = rows
    weights = np.where(np.arange(80) < 30, 2.0, 1.0)
    model = regressor(batch_size=1000).fit(X, y, sample_weight=weights)
    twice = regressor(batch_size=1000).fit(np.vstack([X, X[:30]]), np.concatenate([y, y[:30]]))
    np.testing.assert_array_equal(moments(model), moments(twice))
    np.testing.assert_allclose(std(model), std(twice), rtol=1e-6)


def test_an_interrupted_fit_goes_on_without_new_splits(rows, tmp_path, watch, kill):
    expected = regressor(batch_size=20).fit(*rows)
    model = regressor(batch_size=20, checkpoint=Checkpoint(tmp_path / "x.npz", n_steps=1))
    kill(StructuredGP, 7)
    with pytest.raises(RuntimeError, match="killed"):
        model.fit(*rows)
    made = watch(DeepSparseGP)
    model.fit(*rows)
    assert DeepSparseGP not in {type(one) for one, *_ in made}
    np.testing.assert_array_equal(std(model), std(expected))


def test_a_warm_start_and_chunks_keep_what_was_learned(rows):
    X, y = rows
    model = regressor(warm_start=True).fit(X, y)
    before = moments(model).copy()
    np.testing.assert_array_equal(moments(model.fit(X[:50], y[:50])), before)
    model = regressor(batch_size=10).partial_fit(X[:50], y[:50])
    before = moments(model).copy()
    assert before.any()
    np.testing.assert_array_equal(moments(model.partial_fit(X[50:], y[50:])), before)


def test_a_start_from_another_estimator_learns_anew(rows):
    first, wide = regressor(0).fit(*rows), regressor(1).fit(*rows)
    models = [regressor(init=init).fit(*rows) for init in (first, wide)]
    assert moments(models[0]).any()
    np.testing.assert_array_equal(*map(moments, models))
    assert "variance_inflation.moments" not in regressor(0, init=wide).fit(*rows).members_[0].arrays
    X, y = (part[:39] for part in rows)  # which tell nothing
    assert moments(wide).any() and not moments(regressor(init=wide).fit(X, y)).any()


@pytest.mark.parametrize(("n_rows", "unit"), [(2, 1.0), (39, 1.0), (80, 0.0)])
def test_few_rows_and_constant_inputs_tell_nothing(rows, n_rows, unit):
    X, y = unit * rows[0][:n_rows], rows[1][:n_rows]
    plain, wide = regressor(0).fit(X, y), regressor().fit(X, y)
    assert unit == 0.0 or not moments(wide).any()
    np.testing.assert_array_equal(std(wide), std(plain))


def test_several_targets(rows):
    X, y = rows
    Y = np.column_stack([y, 5.0 - 2.0 * y])
    plain, wide = (std(regressor(n_inflation_splits).fit(X, Y)) for n_inflation_splits in (0, 2))
    assert wide.shape == (3, 2) and (wide > plain).all()


@pytest.mark.parametrize(
    ("likelihood", "kernel"),
    [
        ("heteroscedastic", "matern52"),
        ("student_t", ["squared_exponential", "linear"]),
        ("poisson", ["matern52", "linear"]),
    ],
)
def test_likelihoods_and_kernels(rows, likelihood, kernel):
    X, y = rows
    y = np.round(np.exp(y / 3.0)) if likelihood == "poisson" else y
    model = regressor(likelihood=likelihood, kernel=kernel).fit(X, y)
    assert moments(model).any() and np.isfinite(model.log_predictive_density(X, y)).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(rows, n_classes):
    X, y = rows
    labels = np.digitize(y, [-0.4, 0.4] if n_classes == 3 else [0.0])
    proba = []
    for n in (0, 2):
        model = DeepGPClassifier(inference=regressor(n).inference, **FEW).fit(X, labels)
        proba.append(model.predict_proba(FAR))
    assert moments(model).any() and np.abs(proba[1] - proba[0]).max() > 1e-4
    if n_classes == 2:
        assert (proba[1].max(1) < proba[0].max(1)).all()  # less sure


def test_short_of_time(rows):
    with pytest.warns(ConvergenceWarning, match="max_time was enough for 0 of 2 splits"):
        model = regressor(max_time=1e-3).fit(*rows)
    assert not moments(model).any() and np.isfinite(std(model)).all()


def test_an_interrupt_in_a_half(rows, kill):
    made = kill(DeepSparseGP, 19, error=KeyboardInterrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted after 0 steps"):
        model = regressor().fit(*rows)
    assert (
        StructuredGP not in {type(one) for one, *_ in made} and moments(model).any()
    )  # of the first half
