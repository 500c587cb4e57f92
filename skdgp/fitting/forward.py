"""Members of the default for later times: kernels whose functions go on beyond the last row."""

from ..gp.kernels import Anova, Linear, OnColumns, RandomWalk, RationalQuadratic
from ..inference import Exact, Vecchia
from ..optim.lbfgs import STEPS
from .member import Plan
from .plan import EXACT_ROWS

#: CPU seconds of so many rows, for each of the kernels
_OF_ROWS, _SECONDS = 560, (2.7, 2.2, 1.4)


def trend_plans(plan, n_rows, n_outputs, time, seconds):
    """Members for later times, the most useful first; `time` is the position of the column of time.

    Functions of the first two are sums of a random walk in time and of what all other columns explain, the
    calendar among them; that holds at all times. A line in each column goes on, and how all this changes with
    time is one more function of all inputs. The third has but the last two. Up to 4,000 rows none
    is trained on the rows that it is judged by.
    """
    level = OnColumns(RandomWalk(), [time])
    others = Linear(bias=0.0) + RationalQuadratic()
    kernels = [
        OnColumns(of_rest, [time], exclude=True) + level + others
        for of_rest in (Anova(), RationalQuadratic())
    ]
    found, left = [], seconds
    for kernel, cost in zip((*kernels, others), _SECONDS):
        exact = n_rows <= EXACT_ROWS and n_outputs == 1
        scheme = Exact() if exact else Vecchia(None, "subset", None)
        new = Plan(scheme, plan.likelihood, kernel=kernel, max_iter=STEPS)
        new.seconds = cost * (0.2 + 0.8 * (min(n_rows, 1000) / _OF_ROWS) ** 2)
        new.seconds += 1.5 * (n_rows / 2500) ** 2 if exact else 1.5 + 1e-4 * n_rows
        if not found or new.seconds <= left:
            found.append(new)
            left -= new.seconds
    return found


def of_the_future(plans):
    """Members that have seen all rows, and are judged by blocks of the future.

    Minibatch members do not see the blocks that they are judged by, which are the nearest to predictions. They
    stay where there are no others.
    """
    return [plan for plan in plans if plan.scheme.leaves_groups_out] or plans
