"""Schemes as parameter objects: copies, names, and settings that make no sense."""

import math

import pytest
from sklearn.base import clone

from skdgp.inference import SCHEMES, as_scheme

COUNT, NUMBER = (0, 1.5, True, "a"), (math.nan, math.inf, True, "1")
BAD = {
    **dict.fromkeys(["n_draws", "n_features", "n_hidden_draws", "n_neighbors", "n_chains"], COUNT),
    **dict.fromkeys(["n_samples", "n_tempering", "spacing", "window"], COUNT),
    **dict.fromkeys(
        ["n_warmup", "n_restart", "n_burn_in", "n_learn", "full_scale"], (-1, 1.5, "a")
    ),
    "n_inflation_splits": (-1, 1.5, "a"),
    "coregionalized": ("yes", 2, None),
    **dict.fromkeys(["alpha", "learning_alpha", "natural_step"], (0.0, 1.5, None, *NUMBER)),
    **dict.fromkeys(["least_power", "step_size", "friction"], (0.0, 1.0, *NUMBER)),
    **dict.fromkeys(["inner_noise", "tol"], (-1.0, *NUMBER)),
    **dict.fromkeys(["inner_scale", "inner_variance", "delta", "deviation"], (0.0, *NUMBER)),
    **dict.fromkeys(["shared_covariance", "shared_kernel", "train_inducing", "exact"], ("yes", 1)),
    "unit_scales": ("yes", 1),
    **dict.fromkeys(["natural_gradient", "prediction", "coupling"], ("first", 3)),
    **dict.fromkeys(["frequencies", "sampling", "covariance", "hyperparameters"], ("nothing", 3)),
    **dict.fromkeys(["target", "preconditioner", "last_layer", "start"], ("nothing", 3)),
}
every_scheme = pytest.mark.parametrize("name", SCHEMES)


@every_scheme
def test_schemes_are_parameter_objects(name):
    scheme = as_scheme(name)
    assert type(scheme) is SCHEMES[name] and as_scheme(scheme) is scheme
    assert as_scheme(name) is not scheme
    scheme.validate()
    given = {parameter: BAD[parameter][0] for parameter in scheme.get_params()}
    scheme.set_params(**given)
    assert scheme.get_params() == given
    assert (
        repr(clone(scheme)) == repr(scheme)
        and repr(SCHEMES[name]()) == f"{SCHEMES[name].__name__}()"
    )


@every_scheme
def test_settings_that_make_no_sense(name):
    for parameter in as_scheme(name).get_params():
        for value in BAD[parameter]:
            scheme = as_scheme(name).set_params(**{parameter: value})
            message = rf"^{parameter} of {type(scheme).__name__} must be .*; got {value!r}\.$"
            with pytest.raises(ValueError, match=message):
                scheme.validate()
