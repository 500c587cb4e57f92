"""Members of the last fit with which a warm start goes on."""

from ..gp.kernels import as_kernel
from ..gp.kernels.base import Pair
from ..gp.kernels.indicator import without_levels


def _parts(kernel):
    """The class of a kernel, with those of the parts of sums and products."""
    if isinstance(kernel, Pair):
        return type(kernel), *(_parts(as_kernel(part)) for part in (kernel.left, kernel.right))
    return type(kernel)


def warm_start_sources(plans, members):
    """For each plan the first member left with its scheme, kernel and effects, to go on with, or None.

    A single plan may have other settings of the scheme than the member, and needs one.
    """

    def alike(plan, member, of_scheme=repr):
        planned, kernel = _parts(plan.last_kernel()), member.architecture.kernels[-1]
        same = planned in (_parts(kernel), _parts(without_levels(kernel)))
        same = same and plan.scheme.has_effects == member.scheme.has_effects
        return of_scheme(plan.scheme) == of_scheme(member.scheme) and same

    left, sources = list(members), []
    for plan in plans:
        same = [member for member in left if alike(plan, member)]
        sources.append(same[0] if same else None)
        left = [member for member in left if member is not sources[-1]]
    if members and len(plans) == 1 and sources[0] is None:
        sources = [member for member in members if alike(plans[0], member, of_scheme=type)][:1]
        if not sources:
            raise ValueError(
                f"warm_start=True goes on with the model of the last fit, and none was trained by "
                f"{type(plans[0].scheme).__name__}; set warm_start=False to start anew."
            )
    return sources
