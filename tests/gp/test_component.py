import numpy as np
import pytest
import torch

from skdgp import DeepGPRegressor
from skdgp.gp.component import Trainable
from skdgp.gp.kernels import (
    Anova,
    ArcCosine,
    Kernel,
    Linear,
    Matern,
    RationalQuadratic,
    SquaredExponential,
)
from skdgp.gp.likelihoods import (
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    NegativeBinomial,
    Poisson,
    StudentT,
)

COMPONENTS = {
    "stationary": (SquaredExponential([0.5, 2.0], 3.0), {"lengthscale": [0.5, 2.0], "variance": 3.0}),
    "rational_quadratic": (RationalQuadratic(0.7, [0.5, 2.0]), {"alpha": 0.7}),
    "anova": (Anova(1.5, [0.5, 2.0], [0.1, 3.0]), {"strength": [0.1, 3.0], "lengthscale": [0.5, 2.0]}),
    "arc_cosine": (ArcCosine(0.3, bias=0.2).bind(2), {"lengthscale": [0.3, 0.3], "bias": 0.2}),
    "gaussian": (Gaussian(np.array([0.02, 5.0])), {"variance": [0.02, 5.0]}),
    "student_t": (StudentT(np.array([2.5]), np.array([0.1])), {"df": [2.5], "scale": [0.1]}),
}  # fmt: skip


@pytest.mark.parametrize(("component", "values"), COMPONENTS.values(), ids=COMPONENTS)
def test_a_trainable_starts_at_the_numbers_of_the_component(component, values):
    trainable = Trainable(component)
    tensors, numbers = trainable(), trainable.fitted()
    for name, value in values.items():
        assert isinstance(getattr(tensors, name), torch.Tensor)
        np.testing.assert_allclose(getattr(tensors, name).detach(), value, rtol=1e-9)
        np.testing.assert_allclose(getattr(numbers, name), value, rtol=1e-9)
        assert isinstance(getattr(numbers, name), float | np.ndarray)


@pytest.mark.parametrize(("component", "values"), COMPONENTS.values(), ids=COMPONENTS)
def test_numbers_stay_above_their_floors_wherever_training_goes(component, values):
    trainable = Trainable(component)
    with torch.no_grad():
        for p in trainable.parameters():
            p.fill_(-20.0)
    for name in values:
        value, floor = np.asarray(getattr(trainable.fitted(), name)), component._positive[name]
        assert (value > floor).all()
        np.testing.assert_allclose(value, floor, atol=1e-8)


def test_the_component_itself_does_not_change():
    kernel = SquaredExponential([0.5, 2.0], 3.0)
    trainable = Trainable(kernel)
    trainable.assign(variance=7.0, lengthscale=[1.0, 1.0])
    assert trainable.fitted().variance == pytest.approx(7.0)
    assert (kernel.variance, kernel.lengthscale) == (3.0, [0.5, 2.0])


def test_gradients_reach_every_number():
    kernel = (RationalQuadratic(0.7) + Matern() * Linear(0.2)).bind(2)
    trainable = Trainable(kernel)
    X = torch.tensor([[0.2, 1.0], [0.3, -0.4]]).double()
    trainable()(X, X)[0, 1].backward()
    names = {name for name, _ in trainable.named_parameters()}
    assert names == {
        "left.log_lengthscale",
        "left.log_variance",
        "left.log_alpha",
        "right.left.log_lengthscale",
        "right.left.log_variance",
        "right.right.log_variance",
        "right.right.log_bias",
    }
    assert all(p.grad.abs().min() > 0 for p in trainable.parameters())
    numbers = trainable.fitted()
    np.testing.assert_allclose(numbers.left.alpha, 0.7)
    np.testing.assert_allclose(numbers.right.right.variance, [0.2, 0.2])
    assert isinstance(numbers.left.variance, float)


@pytest.mark.parametrize("kernel", [True, False])
def test_fixed_numbers_are_no_parameters(kernel):
    if kernel:
        trainable = Trainable(SquaredExponential(0.5, trainable=False))
        X = torch.zeros(1, 1).double()
        assert trainable()(X, X).dtype == torch.float64
        assert float(trainable().lengthscale) == 0.5
    else:
        trainable = Trainable(Gaussian(0.3, trainable=False))
        assert float(trainable().variance) == 0.3
    assert list(trainable.parameters()) == []


def test_a_part_can_be_fixed_alone():
    trainable = Trainable((SquaredExponential(trainable=False) + Matern()).bind(2))
    assert {name for name, _ in trainable.named_parameters()} == {
        "right.log_lengthscale",
        "right.log_variance",
    }


def test_a_bias_of_zero_stays_zero():
    trainable = Trainable(Linear(bias=0.0).bind(2))
    assert {name for name, _ in trainable.named_parameters()} == {"log_variance"}
    assert trainable.fitted().bias == 0.0


def test_the_state_holds_fixed_and_trained_numbers():
    kernel = SquaredExponential([0.5, 2.0]) + Linear(trainable=False)
    a, b = Trainable(kernel.bind(2)), Trainable((SquaredExponential() + Linear(9.0)).bind(2))
    a_fixed = Trainable((SquaredExponential() + Linear(9.0, trainable=False)).bind(2))
    a_fixed.load_state_dict(a.state_dict())
    np.testing.assert_array_equal(a_fixed.fitted().left.lengthscale, a.fitted().left.lengthscale)
    np.testing.assert_array_equal(a_fixed.fitted().right.variance, a.fitted().right.variance)
    with pytest.raises(RuntimeError, match="log_variance"):
        b.load_state_dict(a.state_dict())


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (SquaredExponential(-1.0), r"lengthscale of SquaredExponential must be larger than 0\.0; got -1\.0"),
        (SquaredExponential([1.0, 0.0]), r"lengthscale of SquaredExponential must be larger than 0\.0"),
        (SquaredExponential(1.0, np.nan), r"variance of SquaredExponential must be larger than 0\.0; got nan"),
        (SquaredExponential(np.inf), "lengthscale of SquaredExponential must be finite; got inf"),
        (Gaussian(1e-7), r"variance of Gaussian must be larger than 1e-06; got 1e-07"),
        (StudentT(2.0, 1.0), r"df of StudentT must be larger than 2\.0; got 2\.0"),
        (SquaredExponential(0.0), "must be larger than"),
        (RationalQuadratic(0.0, 1.0), "must be larger than"),
        (Gaussian(0.0), "must be larger than"),
        (StudentT(0.0, 1.0), "must be larger than"),
        (SquaredExponential(-1.0, trainable=False), "must be larger than"),
        (Gaussian(-0.1, trainable=False), "must be larger than"),
    ],
)  # fmt: skip
def test_numbers_below_their_floors_are_refused(component, message):
    with pytest.raises(ValueError, match=message):
        Trainable(component)


def test_assign_broadcasts_and_skips_what_is_fixed():
    trainable = Trainable(Linear([0.1, 0.2], bias=0.0))
    trainable.assign(variance=0.7, bias=3.0)
    np.testing.assert_allclose(trainable.fitted().variance, [0.7, 0.7])
    assert trainable.fitted().bias == 0.0


def test_copies_with_other_values():
    kernel = SquaredExponential(0.5)
    other = kernel.with_values(variance=4.0)
    assert (other.variance, other.lengthscale, kernel.variance) == (4.0, 0.5, 1.0)


@pytest.mark.parametrize(("component", "values"), COMPONENTS.values(), ids=COMPONENTS)
def test_every_number_has_a_role(component, values):
    """The same for the component and for its trainable counterpart; none is a name of the latter's methods."""
    roles = {name: role for name, role, _ in component.hyperparameters()}
    assert values.keys() <= roles.keys()
    of_trainable = {one.name: one.role for one in Trainable(component).hyperparameters()}
    assert of_trainable == {f"log_{name}": role for name, role in roles.items()}
    assert set(roles.values()) <= {"lengthscale", "variance", "strength", "shape", "noise"}
    held = component.with_values(trainable=False)
    assert Trainable(held).hyperparameters() == []
    kernel = SquaredExponential([0.5, 2.0]) + Anova(1.5, [0.5, 2.0], [0.1, 3.0])
    trainable = Trainable(kernel)
    assert trainable.multiply("lengthscale", [2.0, 3.0]) and not trainable.multiply("noise", 2.0)
    np.testing.assert_allclose(trainable.fitted().left.lengthscale, [1.0, 6.0])
    np.testing.assert_allclose(trainable.fitted().right.lengthscale, [1.0, 6.0])


WRONG = [
    {"lengthscale": False},
    {"variance": True},
    "False",
    "variance",
    [False],
    ["no_such"],
    0,
    1,
    None,
]
FRESH = {
    "stationary": lambda **given: SquaredExponential(0.3, **given),
    "matern": lambda **given: Matern(**given),
    "rational_quadratic": lambda **given: RationalQuadratic(**given),
    "anova": lambda **given: Anova(**given),
    "arc_cosine": lambda **given: ArcCosine(**given),
    "linear": lambda **given: Linear(**given),
    "sum": lambda **given: SquaredExponential() + Linear(**given),
    "product": lambda **given: Matern(**given) * (SquaredExponential() + Linear()),
    **{kind.__name__: kind for kind in (Gaussian, HeteroscedasticGaussian, StudentT)},
    **{kind.__name__: kind for kind in (HeteroscedasticStudentT, Poisson, NegativeBinomial)},
}


def bound(component):
    if isinstance(component, Kernel):
        return component.bind(2)
    return component.bind(np.ones((3, 1)), np.ones(3), np.ones(1))


@pytest.mark.parametrize("given", WRONG, ids=repr)
@pytest.mark.parametrize("make", FRESH.values(), ids=FRESH)
def test_what_is_trained_is_a_bool_or_names(make, given):
    with pytest.raises(
        ValueError, match=r"trainable of \w+ must be True, False or a list of names"
    ):
        bound(make(trainable=given))


@pytest.mark.parametrize("collection", [list, tuple, set, frozenset])
@pytest.mark.parametrize("make", FRESH.values(), ids=FRESH)
def test_names_are_trained_alone(make, collection):
    everything = {name for name, _ in Trainable(bound(make(trainable=True))).named_parameters()}
    fixed = {name for name, _ in Trainable(bound(make(trainable=False))).named_parameters()}
    own = {name.rpartition("log_")[2] for name in everything - fixed}
    for name in own:
        component = bound(make(trainable=collection([name])))
        found = {name for name, _ in Trainable(component).named_parameters()} - fixed
        assert len(found) == 1 and found.pop().endswith(f"log_{name}")
        assert component.learns
    component = bound(make(trainable=collection([])))
    assert {name for name, _ in Trainable(component).named_parameters()} == fixed
    assert bound(make(trainable=np.True_)).learns


@pytest.mark.parametrize(
    "kernel", [SquaredExponential, RationalQuadratic, ArcCosine, Linear, Matern]
)
def test_lengthscales_are_for_each_input_or_not(kernel):
    with pytest.raises(ValueError, match=r"ard of \w+ must be True or False; got 'False'"):
        kernel(ard="False").bind(2)


def test_names_are_no_hyperparameters_of_columns():
    """Two names beside two columns, of which one is constant."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(size=30), np.ones(30)])
    kernel = SquaredExponential([0.3, 2.0], variance=0.7, trainable=["variance", "lengthscale"])
    noise = Gaussian(1e-2, trainable=False)
    settings = {"inference": "exact", "likelihood": noise, "max_iter": 5, "random_state": 0}
    model = DeepGPRegressor(1, kernel=kernel, **settings).fit(X, np.sin(9.0 * X[:, 0]))
    assert model.kernels_[0].variance != 0.7 and model.kernels_[0].lengthscale[0] != 0.3
    model.set_params(kernel__trainable=["variance"]).fit(X, np.sin(9.0 * X[:, 0]))
    assert model.kernels_[0].variance != 0.7
    np.testing.assert_allclose(model.kernels_[0].lengthscale, [0.3])
