"""Parameters: what can be set is one, and what is advised can be set."""

import re

import numpy as np
import pytest
from sklearn.base import clone

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor
from skdgp.estimators.diagnostics import Diagnostics
from skdgp.fitting.member_fit import MemberFit
from skdgp.fitting.settings import Settings
from skdgp.gp.kernels import SquaredExponential, Stationary
from skdgp.gp.likelihoods import Bernoulli
from skdgp.inference import DSVI, NNGP, SCHEMES, Exact, StructuredVI

ESTIMATORS = [DeepGPRegressor, DeepGPClassifier, SparseGPRegressor, SparseGPClassifier]
NAMES = sorted({name for one in ESTIMATORS for name in one._get_param_names()})


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_can_be_set_is_a_parameter(estimator):
    """Others are refused, or do not exist: clone and searches would forget them."""
    for name in NAMES:
        model = estimator()
        if name in model.get_params():
            setattr(model, name, 7)
            assert getattr(clone(model), name) == 7
        elif hasattr(model, name):
            with pytest.raises(
                AttributeError, match=f"{name} is no parameter of {estimator.__name__}"
            ):
                setattr(model, name, 7)


@pytest.mark.parametrize(
    ("instance", "name"),
    [
        (Exact(), "n_warmup"),
        (NNGP(), "n_draws"),
        (Bernoulli(), "n_nodes"),
        (SquaredExponential(), "is_rough"),
    ],
)
def test_schemes_kernels_and_likelihoods_likewise(instance, name):
    with pytest.raises(AttributeError, match=f"{name} is no parameter"):
        setattr(instance, name, 7)


def test_attributes_of_users_are_theirs():
    class Own(Stationary):
        color = "red"

    class Model(DeepGPRegressor):
        color = "red"

    for one in (Own(), Model()):
        one.color, one.note = "blue", "a note"
        assert (one.color, one.note) == ("blue", "a note")


def test_constructors_are_written_out():
    """Of the sparse estimators; the first argument may be given by its place, as in scikit-learn."""
    for estimator in ESTIMATORS[2:]:
        assert estimator(7).n_inducing == 7
        with pytest.raises(TypeError, match="positional"):
            estimator(7, "linear")
        assert "batch_size" not in estimator().get_params()


# Advice


SHALLOW = "exact", "vecchia", "vfe", "pep"
CASES = {
    **{f"{name}, deep": DeepGPRegressor(inference=name) for name in SCHEMES if name not in SHALLOW},
    **{f"{name}, shallow": DeepGPRegressor(1, inference=name) for name in SCHEMES},
    "gaussian": DeepGPRegressor(inference="dsvi", likelihood="gaussian"),
    "zero mean": DeepGPRegressor(inference="dsvi", mean="zero", init="random"),
    "kernels of units": DeepGPRegressor(inference=DSVI(shared_kernel=False), init="random"),
    "coupled": DeepGPRegressor(inference=StructuredVI(), init="random"),
    "mixture": DeepGPRegressor(),
    "single precision": DeepGPRegressor(inference="dsvi", dtype="float32", standardize=False),
    "classes": DeepGPClassifier(inference="dsvi"),
    "sparse": SparseGPRegressor(init="random"),
    "sparse classes": SparseGPClassifier(init="random"),
}


def few(model):
    settings = {"max_iter": 2, "random_state": 0, "n_inducing": 5}
    names = model.get_params()
    scheme = getattr(model, "inference", "vfe")
    if "n_inducing" not in (SCHEMES.get(scheme, DSVI) if isinstance(scheme, str) else scheme).uses:
        del settings["n_inducing"]
    return clone(model).set_params(
        **{name: value for name, value in settings.items() if name in names}
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_what_is_advised_fits(name, monkeypatch):
    """All that any finding of a model advises, and its warning of losses that are not finite."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(40, 2))
    y = np.sin(8.0 * X[:, 0])
    model = few(CASES[name])
    y = y > 0.0 if hasattr(model, "predict_proba") else y
    model.fit(X, y)
    diagnostics = Diagnostics(
        model.members_,
        model._x_scaler.transform(X),
        model._y_scaler.transform(np.c_[y]),
        "cpu",
        model,
    )
    reports = diagnostics.reports()
    said = [finding.advice for report in reports for finding in report.findings]
    if model.inference != "auto":
        said.append(
            MemberFit(Settings.of(model), model._task(), "cpu")._advice(model.members_[0].scheme)
        )
    text = "; ".join(said)
    for key, value in sorted(set(re.findall(r"(\w+)=('\w+'|True|1e-5)", text))):
        setting = f"inference__{key}" if key == "inner_scale" else key
        value = {"True": True, "1e-5": 1e-5}.get(value, value.strip("'"))
        assert model.get_params().get(setting) != value  # it would be no change
        clone(model).set_params(**{setting: value}).fit(X, y)
    for key in sorted(set(re.findall(r"(?:smaller|larger|set) (\w+)\b(?!=)", text))):
        if key != "lengthscale":
            value = {"learning_rate": 1e-3, "n_layers": 1}.get(key, 3)
            clone(model).set_params(**{key: value}).fit(X, y)
