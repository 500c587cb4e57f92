"""The estimators inside scikit-learn: its checks, meta-estimators, routing and callbacks."""

import contextlib
import inspect

import numpy as np
import pytest
import sklearn
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_moons
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression
from sklearn.metrics import accuracy_score, log_loss, make_scorer, mean_squared_error, r2_score
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor
from skdgp.gp.kernels import Matern, RationalQuadratic
from skdgp.gp.likelihoods import Bernoulli, Poisson
from skdgp.inference import (
    AEP,
    DSVI,
    NNGP,
    SCHEMES,
    SGHMC,
    CollapsedVI,
    DeepInverseWishart,
    EllipticalSlice,
    GlobalInducing,
    RandomFeatures,
    StructuredVI,
)

FEW = {"max_iter": 20, "learning_rate": 0.02, "n_inducing": 10, "n_predict_draws": 8}
SOON = {**FEW, "max_iter": 10, "n_predict_draws": 4}  #: with large natural gradients
SLOW = {**FEW, "learning_rate": 0.1, "n_inducing": 8}  #: without natural gradients
ONE = {**FEW, "inference": "dsvi", "random_state": 0}  #: no mixture, where one model tells as much
CONNECTED = {**ONE, "input_connected": True, "dtype": "float32"}
RFF = {name: value for name, value in FEW.items() if name != "n_inducing"}

#: each class: all checks
ESTIMATORS = [
    DeepGPRegressor(**SOON),  # a mixture
    DeepGPClassifier(**SOON),  # a mixture
    SparseGPRegressor(n_inducing=10, max_iter=5, method="fitc", train_inducing=True),
    SparseGPClassifier(n_inducing=10, max_iter=5),
]
#: the other schemes, with likelihoods in turn: the checks that are not of code that all share
SCHEMES_ALONE = [
    DeepGPRegressor(inference="nngp", max_iter=10),
    DeepGPClassifier(inference=NNGP(natural_step=0.5), **SOON),
    DeepGPClassifier(inference=DeepInverseWishart(natural_step=0.5), **SOON),
    DeepGPRegressor(inference=SGHMC(n_chains=2, n_samples=8), max_iter=12, n_inducing=8),
    # counts are whole numbers, which the checks do not have
    DeepGPRegressor(3, likelihood="student_t", init="random", batch_size=8, **CONNECTED),
    DeepGPClassifier(inference=RandomFeatures(10, "variational"), likelihood="probit", **RFF),
    DeepGPRegressor(
        inference=StructuredVI("full", n_warmup=5), likelihood="heteroscedastic", **FEW
    ),
    DeepGPRegressor(inference=AEP(0.5, "sampling"), input_connected=True, **SLOW),
    DeepGPRegressor(inference=GlobalInducing(natural_step=0.5), likelihood="student_t", **SOON),
    DeepGPRegressor(1, inference="exact", kernel="matern32", max_iter=5),
    DeepGPRegressor(inference=CollapsedVI(n_draws=2), max_iter=10),
    DeepGPRegressor(1, inference="vecchia", max_iter=20),
    DeepGPRegressor(inference=EllipticalSlice(1, n_chains=2, n_samples=4), max_iter=4),
]
OF_A_SCHEME = (
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_dict_unchanged",
    "check_estimators_dtypes",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_non_transformer_estimators_n_iter",
    "check_regressors_train",
    "check_sample_weight_equivalence_on_dense_data",
)


def checks():
    """Pairs of an estimator and a check, each with a name."""
    for estimator in (*ESTIMATORS, *SCHEMES_ALONE):
        for i, (copy, check) in enumerate(estimator_checks_generator(estimator)):
            name = getattr(check, "func", check).__name__
            memory_map = "readonly_memmap" in getattr(check, "keywords", ())
            if estimator in ESTIMATORS or (name in OF_A_SCHEME and not memory_map):
                yield pytest.param(copy, check, id=f"{copy!r}-{name}-{i}")


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_estimator(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def wave():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(80, 2))
    return X, np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(80)


@pytest.fixture(scope="module")
def moons():
    return make_moons(90, noise=0.2, random_state=0)


# Parameters


def test_types_and_tags():
    assert is_regressor(DeepGPRegressor()) and is_classifier(DeepGPClassifier())
    assert DeepGPRegressor().__sklearn_tags__().target_tags.multi_output
    for likelihood in ("poisson", Poisson()):
        tags = DeepGPRegressor(likelihood=likelihood).__sklearn_tags__()
        assert tags.target_tags.positive_only
    assert not DeepGPRegressor().__sklearn_tags__().target_tags.positive_only
    # else scikit-learn leaves its hardest checks out
    for estimator in (*ESTIMATORS, *SCHEMES_ALONE):
        tags = estimator.__sklearn_tags__()
        assert not tags.non_deterministic and not tags.no_validation and not tags._skip_test


@pytest.mark.parametrize("likelihood", ["probit", "logit", Bernoulli()])
def test_two_class_likelihoods_refuse_more_classes(likelihood):
    tags = DeepGPClassifier(likelihood=likelihood).__sklearn_tags__()
    assert not tags.classifier_tags.multi_class
    for other in ("auto", "softmax", "robustmax"):
        assert DeepGPClassifier(likelihood=other).__sklearn_tags__().classifier_tags.multi_class
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        DeepGPClassifier(likelihood=likelihood, **FEW).fit(X, y)


@pytest.mark.parametrize(
    "Estimator", [DeepGPRegressor, DeepGPClassifier, SparseGPRegressor, SparseGPClassifier]
)
def test_parameters_are_stored_as_given_and_documented(Estimator):
    given = {name: object() for name in inspect.signature(Estimator).parameters}
    assert Estimator(**given).get_params(deep=False) == given
    for name in given:
        assert f"\n    {name} : " in Estimator.__doc__, name
    assert hasattr(Estimator(), "partial_fit") == ("Deep" in Estimator.__name__)


def test_both_estimators_have_the_same_parameters():
    first, second = (
        dict(inspect.signature(kind).parameters) for kind in (DeepGPRegressor, DeepGPClassifier)
    )
    assert first.pop("target_transform").default == "auto"  # classes have none
    assert first.pop("exposure").default is None
    assert first.pop("noise").default == "auto"
    assert first.pop("multi_output").default is None
    # classes do not look for times
    assert (first.pop("time").default, second.pop("time").default) == ("auto", None)
    assert first == second and list(first) == list(second)


def test_nested_parameters():
    model = DeepGPRegressor(kernel=Matern(variance=2.0), inference=DSVI(n_draws=3))
    params = model.get_params()
    assert params["kernel__variance"] == 2.0 and params["inference__n_draws"] == 3
    copy = clone(model).set_params(kernel__variance=5.0, inference__n_draws=4)
    assert model.kernel.variance == 2.0 and model.inference.n_draws == 3
    assert copy.kernel.variance == 5.0 and copy.inference.n_draws == 4
    assert copy.kernel is not model.kernel and copy.inference is not model.inference


def test_nested_parameters_of_a_string():
    sparse = SparseGPRegressor().set_params(kernel__variance=2.0, likelihood__variance=0.1)
    assert sparse.kernel.variance == 2.0 and sparse.likelihood.variance == 0.1
    model = DeepGPRegressor(inference="dsvi")
    assert model.set_params(inference__n_draws=5) is model
    assert isinstance(model.inference, DSVI) and model.inference.n_draws == 5
    model.set_params(kernel__variance=2.0, likelihood="gaussian", likelihood__variance=0.1)
    assert model.kernel.variance == 2.0 and model.likelihood.variance == 0.1
    model.set_params(kernel="matern52", kernel__variance=3.0)
    assert isinstance(model.kernel, Matern) and model.kernel.variance == 3.0
    model.set_params(inference="dsvi", inference__natural_step=0.5)
    assert model.inference.n_draws == 1 and model.inference.natural_step == 0.5


@pytest.mark.parametrize(
    ("model", "name", "match"),
    [
        (DeepGPRegressor(), "nope", "Invalid parameter 'nope'"),
        (DeepGPRegressor(inference="dsvi"), "inference__nope", "Invalid parameter 'nope'"),
        (SparseGPRegressor(), "inference__n_draws", "Invalid parameter 'inference'"),
        # of which of its models, which one it will be, of which of several kernels?
        (DeepGPRegressor(), "inference__n_draws", "inference cannot be set while it is 'auto'; na"),
        (DeepGPRegressor(), "likelihood__variance", "likelihood"),
        (DeepGPRegressor(), "kernel__variance", "kernel cannot be set while it is 'auto'; name it"),
        (DeepGPClassifier(), "kernel__variance", "kernel cannot be set while it is 'auto'; name i"),
    ],
)
def test_nested_parameters_that_cannot_be_set(model, name, match):
    with pytest.raises(ValueError, match=match):
        model.set_params(**{name: 2})


@pytest.mark.parametrize(
    ("inference", "together"),
    [(name, False) for name in (*SCHEMES, AEP(), "sparse")] + [("dsvi", True), ("sparse", True)],
)
def test_nested_parameters_of_the_kernel_auto(inference, together):
    """The kernel is the one that a fit would have."""
    settings = {} if inference == "sparse" else {"n_layers": 1, "inference": inference}
    Estimator = SparseGPRegressor if inference == "sparse" else DeepGPRegressor
    X = np.arange(8.0)[:, None]
    default = Estimator(max_iter=1, kernel="auto", **settings).fit(X, X[:, 0])
    given = {**settings, "kernel__variance": 2.0}
    model = Estimator() if together else Estimator(**settings)
    model.set_params(**{"kernel": "auto", **given} if together else given)
    assert type(model.kernel) is type(default.kernels_[0])
    assert model.kernel.variance == 2.0


def test_a_search_over_numbers_of_the_kernel_auto(wave):
    model = DeepGPRegressor(n_layers=1, inference="vecchia", max_iter=2, random_state=0)
    search = GridSearchCV(model, {"kernel__alpha": [0.5, 2.0]}, cv=2).fit(*wave)
    assert isinstance(search.best_estimator_.kernel, RationalQuadratic)


def test_fit_leaves_parameter_objects_alone(wave):
    kernel, scheme = Matern(nu=2.5), DSVI(n_draws=2)
    model = DeepGPRegressor(kernel=kernel, inference=scheme, likelihood="student_t", **FEW)
    before = {name: repr(value) for name, value in model.get_params().items()}
    model.fit(*wave)
    assert model.kernel is kernel and model.inference is scheme
    assert {name: repr(value) for name, value in model.get_params().items()} == before


def test_repr_and_html(wave):
    model = DeepGPRegressor(n_layers=3, inference=DSVI(n_draws=2), random_state=0)
    assert repr(model) == ("DeepGPRegressor(inference=DSVI(n_draws=2), n_layers=3, random_state=0)")
    assert "DeepGPRegressor" in model._repr_html_()
    fitted = DeepGPRegressor(**FEW).fit(*wave)
    before = dict(fitted.__dict__)
    html = fitted._repr_html_()
    theirs = LinearRegression().fit(*wave)._repr_html_()
    if "n_features_in_" in theirs:  # since scikit-learn 1.9
        assert "n_iter_" in html and "members_" in html
    assert fitted.__dict__.keys() == before.keys()


def test_unfitted():
    X = np.zeros((2, 2))
    for call in (
        DeepGPRegressor().predict,
        DeepGPRegressor().predict_quantiles,
        DeepGPRegressor().sample_y,
        DeepGPClassifier().predict,
        DeepGPClassifier().predict_proba,
        DeepGPClassifier().sample_y,
    ):
        with pytest.raises(NotFittedError):
            call(X)
    with pytest.raises(NotFittedError):
        DeepGPClassifier().log_predictive_density(X, [0, 1])
    assert not hasattr(DeepGPRegressor, "predict_proba")


# Meta-estimators


def test_pipeline_passes_return_std_on(wave):
    X, y = wave
    model, scaled = DeepGPRegressor(**ONE), MinMaxScaler().fit_transform(X)
    pipeline = make_pipeline(MinMaxScaler(), model).fit(X, y)
    expected = clone(model).fit(scaled, y).predict(scaled, return_std=True)
    np.testing.assert_array_equal(pipeline.predict(X, return_std=True), expected)
    assert pipeline.predict(X[:5], return_cov=True)[1].shape == (5, 5)


def test_grid_search_with_two_workers(wave):
    X, y = wave
    grid = {"n_layers": [1, 2], "inference__natural_step": [1e-3, 0.5]}
    model = DeepGPRegressor(**ONE)
    two, one = (
        GridSearchCV(model, grid, cv=2, n_jobs=n_jobs, error_score="raise").fit(X, y)
        for n_jobs in (2, 1)
    )
    scores = two.cv_results_["mean_test_score"]
    assert len(np.unique(scores.round(6))) == 4  # every parameter reaches the fit
    # equal up to rounding: workers may use other numbers of threads
    np.testing.assert_allclose(scores, one.cv_results_["mean_test_score"], atol=1e-6)
    assert two.best_params_["inference__natural_step"] == 0.5
    best = two.best_estimator_
    assert best.n_layers == two.best_params_["n_layers"]
    np.testing.assert_array_equal(two.predict(X), best.predict(X))
    assert model.inference == "dsvi"


def test_halving_search_over_steps(wave):
    search = HalvingGridSearchCV(
        DeepGPRegressor(**ONE),
        {"learning_rate": [1e-4, 1e-2, 0.1], "n_layers": [1, 2]},
        resource="max_iter",
        min_resources=10,
        max_resources=90,
        factor=3,
        cv=2,
        random_state=0,
        error_score="raise",
    ).fit(*wave)
    assert search.n_resources_ == [10, 30]
    assert search.best_estimator_.max_iter == 30 and search.best_estimator_.n_iter_ == 30


def test_cross_val_predict_proba(moons):
    X, y = moons
    model = DeepGPClassifier(**ONE)
    cv = KFold(3, shuffle=True, random_state=0)
    proba = cross_val_predict(model, X, y, cv=cv, method="predict_proba")
    train, test = next(iter(cv.split(X)))
    expected = clone(model).fit(X[train], y[train]).predict_proba(X[test])
    np.testing.assert_allclose(proba[test], expected, atol=1e-12)
    assert log_loss(y, proba) < 0.45  # chance is 0.69


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibrated_classifier(moons, method):
    X, y = moons
    names = np.array(["no", "yes"])[y]
    model = CalibratedClassifierCV(DeepGPClassifier(**ONE), cv=3, method=method)
    model.fit(X, names)
    proba = model.predict_proba(X)
    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(proba.sum(1), 1.0)
    assert model.score(X, names) > 0.8


def test_bagging(wave):
    X, y = wave
    base = DeepGPRegressor(**ONE)
    bag = BaggingRegressor(base, n_estimators=3, random_state=0).fit(X, y)
    each = [member.predict(X) for member in bag.estimators_]
    np.testing.assert_allclose(bag.predict(X), np.mean(each, 0))
    assert np.ptp(each, axis=0).max() > 1e-3  # they saw different rows
    assert bag.score(X, y) > 0.2


def test_permutation_importance(wave):
    X, y = wave
    model = DeepGPRegressor(**ONE).fit(X, y)
    importance = permutation_importance(model, X, y, n_repeats=3, random_state=0)
    assert importance.importances_mean[0] > 10 * abs(importance.importances_mean[1])


def test_metadata_routing_of_weights(wave):
    X, y = wave
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, size=len(X)).astype(float)
    scorer, cv = make_scorer(mean_squared_error, greater_is_better=False), KFold(2)
    with sklearn.config_context(enable_metadata_routing=True):
        model = DeepGPRegressor(**ONE).set_fit_request(sample_weight=True)
        scorer = scorer.set_score_request(sample_weight=False)
        given = {"cv": cv, "scoring": scorer, "params": {"sample_weight": weights}}
        scores = cross_val_score(model, X, y, **given)
        search = GridSearchCV(make_pipeline(MinMaxScaler(), model), {}, cv=cv, scoring=scorer)
        search.fit(X, y, sample_weight=weights)
    train, test = next(iter(cv.split(X)))
    alone = DeepGPRegressor(**ONE)
    weighted = clone(alone).fit(X[train], y[train], sample_weight=weights[train])
    expected = -mean_squared_error(y[test], weighted.predict(X[test]))
    np.testing.assert_allclose(scores[0], expected, rtol=1e-9)
    unweighted = -mean_squared_error(y[test], clone(alone).fit(X[train], y[train]).predict(X[test]))
    assert abs(scores[0] - unweighted) > 1e-4
    scaled = MinMaxScaler().fit_transform(X)
    full = clone(alone).fit(scaled, y, sample_weight=weights)
    np.testing.assert_allclose(search.predict(X), full.predict(scaled), rtol=1e-9)


def test_routing_has_the_validation_arguments():
    wanted = dict.fromkeys(("X_val", "y_val", "sample_weight_val", "sample_weight"), True)
    with sklearn.config_context(enable_metadata_routing=True):
        model = DeepGPRegressor().set_fit_request(**wanted)
        assert wanted.items() <= model.get_metadata_routing().fit.requests.items()


# Callbacks

callbacks = pytest.mark.skipif(
    not hasattr(DeepGPRegressor, "set_callbacks"), reason="scikit-learn without callbacks"
)


class Recorder:
    """Remembers what it is told, and can stop a fit."""

    def __init__(self, stop_after=None, interrupt_after=None):
        self.stop_after, self.interrupt_after = stop_after, interrupt_after
        self.begun, self.ended, self.fitted = [], [], []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.begun.append(context.task_name)

    def on_fit_task_end(self, estimator, context, *, X, y, metadata, fitted_estimator):
        self.ended.append(context.task_name)
        if context.task_name == "block":
            self.fitted.append(fitted_estimator.predict(X))
            if len(self.fitted) == self.interrupt_after:
                raise KeyboardInterrupt
            return len(self.fitted) == self.stop_after
        return False


@callbacks
def test_callbacks_see_every_block(wave):
    recorder = Recorder()
    model = DeepGPRegressor(**{**ONE, "max_iter": 120})
    model.set_callbacks(recorder).fit(*wave)
    assert recorder.begun.count("block") == recorder.ended.count("block") == 3
    assert len(recorder.begun) == len(recorder.ended) == 4
    # the last block shows the model that fit leaves, the first one does not
    np.testing.assert_allclose(recorder.fitted[-1], model.predict(wave[0]), atol=1e-10)
    assert np.abs(recorder.fitted[0] - recorder.fitted[-1]).max() > 1e-3


@callbacks
def test_callbacks_do_not_change_the_fit(wave):
    model = DeepGPRegressor(**{**ONE, "max_iter": 51})
    plain = clone(model).fit(*wave)
    watched = clone(model).set_callbacks(Recorder()).fit(*wave)
    np.testing.assert_array_equal(plain.predict(wave[0]), watched.predict(wave[0]))


@callbacks
@pytest.mark.parametrize("how", ["callback", "patience", "interrupt"])
def test_every_task_that_begins_ends(wave, how):
    recorder = Recorder(2 if how == "callback" else None, 2 if how == "interrupt" else None)
    model = DeepGPRegressor(**ONE, n_iter_no_change=1).set_params(max_iter=400)
    model.set_params(tol=1e9 if how == "patience" else 0.0).set_callbacks(recorder)
    interrupted = pytest.warns(match="interrupted after 100 steps")
    with interrupted if how == "interrupt" else contextlib.nullcontext():
        model.fit(*wave)
    assert model.n_iter_ == 100
    assert sorted(recorder.begun) == sorted(recorder.ended)


@callbacks
def test_callbacks_when_time_runs_out(wave):
    recorder = Recorder()
    model = DeepGPRegressor(max_time=1e-9, **{**FEW, "max_iter": 90})
    with pytest.warns(match="max_time"):
        model.set_callbacks(recorder).fit(*wave)
    assert sorted(recorder.begun) == sorted(recorder.ended)
    assert np.isfinite(model.predict(wave[0])).all()


def log_density(estimator, X, y):
    return estimator.log_predictive_density(X, y).mean()


@callbacks
def test_progress_bar_and_scoring_monitor_through_a_search(wave, capsys):
    pytest.importorskip("rich")
    from sklearn.callback import ProgressBar, ScoringMonitor

    X, y = wave
    monitor = ScoringMonitor(scoring={"r2": make_scorer(r2_score), "lpd": log_density})
    model = DeepGPRegressor(**{**ONE, "max_iter": 100})
    watched, grid = clone(model).set_callbacks(monitor), {"n_layers": [1, 2]}
    search = GridSearchCV(watched, grid, cv=2, n_jobs=2, refit=False)
    search.set_callbacks(ProgressBar(max_propagation_depth=2)).fit(X, y)
    assert "GridSearchCV" in capsys.readouterr().out
    scores = [row for row in monitor.get_logs().data if row["task_name"] == "block"]
    fits = {row["parent_task_id_path"] for row in scores}
    assert len(fits) == 4 and len(scores) == 8  # four fits of two blocks
    train, _ = next(iter(KFold(2).split(X)))
    alone = clone(model).set_params(n_layers=1).fit(X[train], y[train])
    last = [alone.score(X[train], y[train]), log_density(alone, X[train], y[train])]
    assert any(np.allclose([row["r2"], row["lpd"]], last, atol=1e-6) for row in scores)


@callbacks
def test_scoring_monitor_of_a_weighted_classifier(moons):
    from sklearn.callback import ScoringMonitor

    X, y = moons
    weights = np.arange(len(X)) % 3
    monitor = ScoringMonitor(scoring=make_scorer(accuracy_score))
    model = DeepGPClassifier(**{**ONE, "max_iter": 60}).set_callbacks(monitor)
    model.fit(X, y, sample_weight=weights)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "block"]
    assert len(rows) == 2
    np.testing.assert_allclose(rows[-1]["score"], model.score(X, y, sample_weight=weights))
