"""An emulated CUDA device for a torch without one.

Tensors "on the GPU" hold a tensor of the CPU. ::

    import emulated
    emulated.install()         # before tensors are made; device="cuda" makes emulated ones from now on
    emulated.present = False   # from here on, this is a machine without a GPU
    emulated.seen              # the operators that ran "on the GPU"

What raises on a GPU raises here: operators with tensors of both devices (but for numbers, and for indices
on the CPU), ``.numpy()`` and ``np.asarray``, generators of the CPU, products of integers, the fused Adam
with gradients that lie in memory in another way than their parameters. As on a GPU, the way back through a
graph is another thread's. For the C++ side of torch emulated tensors are on the CPU: autograd and views are
torch's own, but functions that make further tensors there need :func:`_inside`.
"""

import threading

import torch

CUDA = torch.device("cuda", 0)
present = True  #: whether the machine has the GPU
seen = set()  #: operators that ran on it
_cpu = torch._C.TensorBase
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "addmv", "addbmm", "vdot"}
_TAKE_NUMBERS = {"fill", "fill_", "masked_fill", "masked_fill_", "where"}
_CONVERSIONS = {"tensor", "as_tensor", "asarray"}
_FACTORIES = (
    "arange as_tensor asarray empty empty_like empty_strided eye full full_like linspace logspace "
    "ones ones_like rand rand_like randint randint_like randn randn_like randperm scalar_tensor "
    "tensor tril_indices triu_indices zeros zeros_like"
).split()


def _on_cuda(device):
    if device is None or isinstance(device, int):
        return device is not None
    device = torch.device(device)
    if device.type == "cuda" and device.index:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return device.type == "cuda"


def _need_gpu():
    if not present:
        raise AssertionError("Torch not compiled with CUDA enabled")


class CudaTensor(torch.Tensor):
    """A tensor on the emulated GPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        _need_gpu()
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        self = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, **layout)
        self.inner = inner
        return self

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    get_device = lambda self: 0  # noqa: E731
    data_ptr = lambda self: self.inner.data_ptr()  # noqa: E731

    def _set_data(self, value):
        if not isinstance(value, CudaTensor):
            raise RuntimeError("emulated: .data of the other device")
        _cpu.data.__set__(self, value)
        self.inner = value.inner

    def _set_grad(self, value):
        if value is not None and not isinstance(value, CudaTensor):
            raise RuntimeError("assigned grad has data located on a different device")
        _cpu.grad.__set__(self, value)

    data = property(lambda self: _cpu.data.__get__(self), _set_data)
    grad = property(
        lambda self: _cpu.grad.__get__(self), _set_grad, lambda self: _cpu.grad.__delete__(self)
    )

    def numpy(self, *, force=False):
        if force:
            return self.detach().cpu().numpy()
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")

    def __array__(self, *args, **kwargs):
        return self.numpy()

    def tolist(self):
        return self.inner.tolist()

    def new_tensor(self, data, dtype=None, device=None, requires_grad=False):
        dtype, device = dtype or self.dtype, device or self.device
        return torch.tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)

    def __deepcopy__(self, memo):
        new = CudaTensor(self.inner.clone()).requires_grad_(self.requires_grad)
        if hasattr(self, "_is_param"):
            new._is_param = True
        return memo.setdefault(id(self), new)

    def __reduce_ex__(self, protocol):
        return CudaTensor, (self.inner,)

    def __repr__(self):
        return f"{self.inner!r} on cuda:0"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        flat = _leaves([args, kwargs.values()], [])
        _check(func, args, kwargs, flat)
        before = {id(_inner(x)): x for x in flat if isinstance(x, torch.Tensor)}
        with torch._C.DisableTorchFunction():
            inner = {name: _mapped(_inner, x) for name, x in kwargs.items()}
            out = func(*_mapped(_inner, args), **inner)

        def wrapped(x):
            if not isinstance(x, torch.Tensor):
                return x
            return before[id(x)] if id(x) in before else CudaTensor(x)

        return _mapped(wrapped, out)


def _inner(x):
    return x.inner if isinstance(x, CudaTensor) else x


def _leaves(parts, out):
    """Append all that lists and tuples hold, a tenth of the time of torch's trees."""
    for x in parts:
        if isinstance(x, (list, tuple, type({}.values()))):
            _leaves(x, out)
        else:
            out.append(x)
    return out


def _mapped(function, x):
    """The same lists and tuples of the values of a function."""
    if isinstance(x, (list, tuple)):
        return type(x)([_mapped(function, part) for part in x])
    return function(x)


def _check(func, args, kwargs, flat):
    """Raise where a GPU would."""
    name = func._schema.name.partition("::")[2]
    seen.add(func)
    here = [x for x in flat if isinstance(x, CudaTensor)]
    there = [x for x in flat if isinstance(x, torch.Tensor) and not isinstance(x, CudaTensor)]
    if any(x.shape != x.inner.shape or x.dtype != x.inner.dtype for x in here):
        raise NotImplementedError(f"emulation lost track of a tensor before {func}")
    if torch.Generator in map(type, flat):
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    if name in _PRODUCTS and not (here[0].is_floating_point() or here[0].is_complex()):
        raise RuntimeError(f'"{name}_cuda" not implemented for {here[0].dtype}')
    if name.startswith("_fused_adam"):
        for like in zip(*args[:4]):
            if len({(x.stride(), x.dtype, x.shape) for x in like}) > 1 or not _dense(like[0]):
                raise RuntimeError("params, grads, ... must have same dtype, device, and layout")
    if not there or name in {"copy_", "_copy_from", "_to_copy"}:
        return
    if name in {"index", "index_put", "index_put_", "_index_put_impl_"}:
        values = [args[0], *args[2:3]]
        if isinstance(args[0], CudaTensor) and all(
            isinstance(x, CudaTensor) or x.ndim == 0 for x in values
        ):
            return  # indices may be on the CPU
    elif all(x.ndim == 0 for x in there):  # numbers, if they are only read
        written = [
            kwargs.get(a.name, args[i] if i < len(args) else None)
            for i, a in enumerate(func._schema.arguments)
            if a.alias_info is not None and a.alias_info.is_write
        ]
        takes = torch.Tag.pointwise in func.tags or name in _TAKE_NUMBERS or "foreach" in name
        if takes and not any(w is x for w in _leaves(written, []) for x in there):
            return
    shapes = [(type(x).__name__, tuple(x.shape)) for x in flat if isinstance(x, torch.Tensor)]
    raise RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and "
        f"cpu! ({func}: {shapes})"
    )


def _dense(x):
    """Whether a tensor has no gaps and no overlaps."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(x.stride(), x.shape) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


class _Move(torch.autograd.Function):
    """A copy on the other device."""

    @staticmethod
    def forward(ctx, x):
        return x.inner.clone() if isinstance(x, CudaTensor) else CudaTensor(x.detach().clone())

    @staticmethod
    def backward(ctx, g):
        return _Move.apply(g)


def _to(self, *args, copy=False, **kwargs):
    other = kwargs.pop("other", args[0] if args and isinstance(args[0], torch.Tensor) else None)
    if other is not None:
        args, kwargs = (other.device, other.dtype), {}
    device, dtype, _, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    out = self
    if dtype is not None or copy or memory_format is not None:
        out = _cpu.to(out, dtype or self.dtype, copy=copy, **_given(memory_format=memory_format))
    if device is not None and _on_cuda(device) != isinstance(self, CudaTensor):
        if _on_cuda(device):
            _need_gpu()
        out = _Move.apply(out)
    return out


def _given(**kwargs):
    return {name: value for name, value in kwargs.items() if value is not None}


def _factory(make):
    """A function that makes tensors, which knows the emulated device."""
    name = make.__name__

    def made(*args, device=None, requires_grad=False, **kwargs):
        if name in _CONVERSIONS and isinstance(args[0], torch.Tensor):
            x = args[0].detach().clone() if name == "tensor" else args[0]
            x = x.to(device or x.device, kwargs.get("dtype") or x.dtype)
            return x.requires_grad_(requires_grad or x.requires_grad)
        options = {"requires_grad": True} if requires_grad else {}
        if not _on_cuda(device):
            if device is not None:  # not where `x` of zeros_like(x, device="cpu") is
                args, options["device"] = tuple(map(_inner, args)), device
            return make(*args, **options, **kwargs)
        _need_gpu()
        if kwargs.get("generator") is not None:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        return CudaTensor(make(*map(_inner, args), **kwargs)).requires_grad_(requires_grad)

    return made


def _inside(function):
    """For functions of one tensor that make others on the C++ side; without gradients."""

    def run(x, *args, **kwargs):
        if isinstance(x, CudaTensor):
            return CudaTensor(function(x.inner, *args, **kwargs))
        return function(x, *args, **kwargs)

    return run


def _module_to(to):
    """``Module.to``, which swaps parameters: their C++ side cannot be changed."""

    def moved(self, *args, **kwargs):
        device, dtype, _, _ = torch._C._nn._parse_to(*args, **kwargs)
        parts = [*self.parameters(), *self.buffers()]
        if dtype is None and all(_on_cuda(device) == isinstance(x, CudaTensor) for x in parts):
            return self
        for x in parts:
            x.grad = None  # what has a gradient cannot be swapped; a GPU would take it along
        return to(self, *args, **kwargs)

    return moved


def _of_device(backward):
    """What goes back through a GPU's graph does so in a thread of the device, without the caller's context."""

    def run(tensors, *args, **kwargs):
        if not any(isinstance(x, CudaTensor) for x in _leaves([tensors], [])):
            return backward(tensors, *args, **kwargs)
        out = []

        def work():
            try:
                out.append(backward(tensors, *args, **kwargs))
            except BaseException as error:
                out.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if isinstance(out[0], BaseException):
            raise out[0]
        return out[0]

    return run


def install():
    """From now on torch has a GPU."""
    torch.autograd.backward = _of_device(torch.autograd.backward)
    torch.autograd.grad = _of_device(torch.autograd.grad)
    torch.Tensor.to = _to
    torch.Tensor.cpu = lambda self: self.to("cpu")
    torch.Tensor.cuda = lambda self, device="cuda": self.to(device)
    torch.Tensor.type_as = lambda self, other: self.to(other)
    for name in _FACTORIES:
        setattr(torch, name, _factory(getattr(torch, name)))
    torch.linalg.pinv = _inside(torch.linalg.pinv)
    torch.Tensor.quantile = _inside(torch.Tensor.quantile)
    torch.nn.functional.one_hot = _inside(torch.nn.functional.one_hot)
    torch.cuda.is_available = lambda: present
    torch.cuda.device_count = lambda: int(present)
    torch.nn.Module.to = _module_to(torch.nn.Module.to)
    torch.__future__.set_swap_module_params_on_conversion(True)
