"""Alarms of fit, and what diagnose says."""

import copy
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.datasets import load_diabetes, load_iris, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.estimators import diagnostics
from skdgp.estimators.diagnostics import Report
from skdgp.gp.likelihoods import Gaussian
from skdgp.inspection import Diagnosis, PathologyWarning, diagnose
from skdgp.training.pathologies import Finding
from skdgp.training.reference import Reference


def waves(n=120):
    X = np.linspace(-1, 1, n)[:, None]
    return X, np.sin(10 * X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(n)


def regressor(**settings):
    settings = {"inference": "dsvi", "n_inducing": 30, "max_iter": 100, **settings}
    return DeepGPRegressor(random_state=0).set_params(**settings)


LOUD = {"likelihood": Gaussian(variance=1.0, trainable=False)}


@pytest.fixture(scope="module")
def loud():
    with pytest.warns(PathologyWarning) as caught:
        model = regressor(**LOUD).fit(*waves())
    return model, [str(one.message) for one in caught]


def test_fit_warns_once(loud):
    (message,) = loud[1]
    assert "data explained by noise" in message and "diagnose" in message


def test_fit_is_silent_below_a_hundred_steps():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor(max_iter=99, **LOUD).fit(*waves())


@pytest.fixture(scope="module")
def healthy():
    return regressor().fit(*waves())


def listening(asked):
    """The predictive distribution that notes how many members are asked."""

    class Listening(diagnostics.Mixture):
        def __init__(self, members, *args):
            super().__init__(members, *args)
            asked.append(len(members))

    return Listening


@pytest.fixture(scope="module")
def mixture():
    """A fitted mixture, and the numbers of members that its fit asked for reports."""
    asked = []
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("error")
        patch.setattr(diagnostics, "Mixture", listening(asked))
        model = regressor(inference="auto").fit(*waves())
    return model, tuple(asked)


def test_healthy_mixtures_are_silent(mixture):
    assert diagnose(mixture[0], *waves()).ok


@pytest.mark.parametrize("settings", [{}, {"init": "greedy"}, {"n_layers": 3}, {"n_layers": 1}])
def test_healthy_fits_are_silent(settings):
    X, y = waves()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = regressor(**settings, max_iter=300).fit(X, y)
    assert diagnose(model, X, y).ok


def test_a_good_mixture_is_asked_once(mixture, monkeypatch):
    """Reports on its members, which take their time, are for those that are suspect."""
    model, in_fit = mixture
    n, asked = len(model.members_), []
    assert in_fit == (n,)
    monkeypatch.setattr(diagnostics, "Mixture", listening(asked))
    diagnose(model, *waves())
    assert sorted(asked) == [1] * n + [n]


def test_real_data_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X, y = (part[::2] for part in load_diabetes(return_X_y=True))
        DeepGPRegressor(max_iter=100, n_inducing=30, random_state=0).fit(X, y)
        X, y = load_iris(return_X_y=True)
        DeepGPClassifier(max_iter=100, n_inducing=30, random_state=0).fit(X, y)


def test_text_and_html(loud, healthy):
    diagnosis = diagnose(loud[0], *waves())
    assert not diagnosis.ok
    text = str(diagnosis)
    assert text.startswith("Suspect: ") and "SEVERE    data explained by noise" in text
    assert "-> start with init='greedy'" in text
    assert repr(diagnosis) == text
    fine = str(diagnose(healthy, *waves()))
    assert fine.startswith("OK: ") and "SEVERE" not in fine
    html = diagnosis._repr_html_()
    assert html.count("<table>") == html.count("</table>") == 1
    assert "data explained by noise" in html and "greedy" in html
    assert "<tr><td>" in html and "&#x27;" in html  # quotes are escaped


def test_missed_share(loud):
    """The gap to the reference over what this gains on a constant, but for two standard errors."""
    X, y = waves()
    model = loud[0]
    t = (y - y.mean()) / y.std()
    reference = Reference((X - X.mean()) / X.std(), t[:, None])
    known = reference.log_density - norm.logpdf(t)
    gap = reference.log_density - np.log(y.std()) - model.log_predictive_density(X, y)
    behind = gap.mean() - 2 * gap.std() / np.sqrt(len(gap))
    assert_allclose(diagnose(model, X, y).missed, behind / known.mean(), rtol=1e-6)


def lead_astray(member):
    """Move the inducing inputs of both layers away from the data."""
    for name in ("layers.0.Z", "layers.1.Z"):
        member.arrays[name] = member.arrays[name] + 100.0
    member._posteriors.clear()


def test_mixtures_have_a_report_for_each_model(mixture):
    X, y = waves()
    model = copy.deepcopy(mixture[0])
    deep = [len(member.architecture.widths) for member in model.members_].index(1)
    lead_astray(model.members_[deep])
    diagnosis = diagnose(model, X, y)
    others = list(diagnosis.reports)
    first = others.pop(deep)
    assert first.severe and "inducing inputs away from the data" in {c.name for c in first.causes}
    assert not any(report.severe for report in others)
    n = len(model.members_)
    assert f"Model {deep + 1} of {n}, predictions suffer" in str(diagnosis)
    assert diagnosis._repr_html_().count("<table>") == n


@pytest.mark.parametrize("error", [-1e6, 1e6])
def test_single_rows_do_not_decide(loud, healthy, monkeypatch, error):
    """However far off they are: they make no model suspect, and the scatter that they bring heals none."""
    X, y = waves()

    class Surprised(diagnostics.Mixture):
        def log_prob(self, y):
            logs = super().log_prob(y)
            logs[7] += error
            return logs

    monkeypatch.setattr(diagnostics, "Mixture", Surprised)
    assert diagnose(healthy, X, y).ok
    assert not diagnose(loud[0], X, y).ok


@pytest.mark.parametrize(
    ("missed", "figure", "severe"),
    [(0.3, 2.5, True), (0.3, 1.5, False), (0.2, 2.5, False), (0.41, 0.5, True)],
)
def test_less_is_borne_if_an_extreme_figure_is_to_blame(missed, figure, severe):
    report = Report(missed, [Finding("", 1, "", figure, 1.0, "", extreme=2.0)])
    assert report.severe == severe
    diagnosis = Diagnosis([report], missed)
    assert diagnosis.ok != severe
    assert str(diagnosis).startswith("Suspect: the model misses" if severe else "OK")


def test_two_inducing_points():
    """The function of Friedman is mostly linear, so that a linear mean function hides the worst."""
    X, y = make_friedman1(300, noise=1.0, random_state=0)
    model = DeepGPRegressor(inference="dsvi", n_inducing=2, max_iter=300, random_state=0)
    with pytest.warns(PathologyWarning, match="too few inducing points .set n_inducing to"):
        model.fit(X, y)


def test_other_targets(loud):
    X, y = waves()
    two = regressor(likelihood="gaussian").fit(X, np.column_stack([y, 3.0 - y]))
    assert diagnose(two, X, np.column_stack([y, 3.0 - y])).ok
    counts = np.random.default_rng(0).poisson(np.exp(2 + y))
    assert diagnose(regressor(likelihood="poisson").fit(X, counts), X, counts).ok
    labels = np.where(y > 0, "up", "down")
    settings = {"n_inducing": 30, "max_iter": 100, "random_state": 0}
    assert diagnose(DeepGPClassifier(**settings).fit(X, labels), X, labels).ok
    model = DeepGPClassifier(inference="dsvi", **settings).fit(X, labels)
    assert diagnose(model, X, labels).ok
    lead_astray(model.members_[0])
    assert not diagnose(model, X, labels).ok


def test_repeated_rows_do_not_help_and_few_give_no_verdict(loud):
    X, y = waves()
    once = diagnose(loud[0], X, y)
    assert_allclose(diagnose(loud[0], np.tile(X, (3, 1)), np.tile(y, 3)).missed, once.missed)
    diagnosis = diagnose(loud[0], X[:10], y[:10])
    assert diagnosis.missed is None and diagnosis.ok
    assert "No verdict" in str(diagnosis)


def test_pipelines_and_bad_input(loud):
    X, y = waves()
    pipeline = make_pipeline(StandardScaler(), regressor()).fit(X, y)
    assert diagnose(pipeline, X, y).ok
    assert str(diagnose(FrozenEstimator(pipeline), X, y)) == str(diagnose(pipeline, X, y))
    with pytest.raises(NotFittedError):
        diagnose(regressor(), X, y)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        diagnose(loud[0], X, y[1:])
    counts = regressor(likelihood="poisson", max_iter=5).fit(X, np.round(np.abs(y)))
    with pytest.raises(ValueError, match="y are negative, but the Poisson likelihood"):
        diagnose(counts, X, -np.ones(len(X)))
