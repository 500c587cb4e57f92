"""The scaling of a fit: learned from its rows, or taken from another fit."""

from ..preprocessing.scaling import Scaling

_MOST_WARPED = 300  #: columns that are warped by default: of more, 400 rows cannot say which


def scale(estimator, data, likelihood, source, rng, others=None):
    """Learn the scaling of inputs and targets in place, or take that of another fit.

    `source` is a fitted estimator whose scaling is used, or None. Targets of `others`, a list of
    Data, need the map, too; it is None if they are not known yet.
    """
    known = data.y_scaler  # of the whole of which these rows are a part

    def target_maps(data):
        return known.maps if known else estimator._target_maps(data, likelihood, source, others)

    given = estimator.standardize if isinstance(estimator.standardize, Scaling) else None
    if source is not None:
        given = Scaling(source._x_scaler, source._y_scaler)
    standardize = estimator.standardize if given is None else given.x_scaler.standardize
    data.scale(standardize, likelihood.scales_target, rng, target_maps, likelihood)
    if given is not None:
        given.check(data.X.shape[1])
        data.scale_as(given.x_scaler, _target_scaler(estimator, given.y_scaler, data.y_scaler))
    elif estimator.standardize == "warp" or (
        estimator.standardize == "auto"
        and estimator._warps()
        and len(data.x_scaler.columns) <= _MOST_WARPED
    ):
        data.warp(likelihood)


def _target_scaler(estimator, given, own):
    """The scaler of another fit, or the own one where targets are treated in another way."""
    alike = given.standardize == own.standardize and len(given.scale) == len(own.scale)
    named = estimator.target_transform == "auto" or {estimator.target_transform} == set(given.names)
    return given if alike and named else own
