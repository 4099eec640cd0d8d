"""Every public function and layer, in every mode of PyTorch: right values, or a clear error.

Inputs of a function are found by the names of its parameters, so a new public function is tested
without changes here. A function with an unknown parameter fails until `INPUTS` has a value for it.
"""

from __future__ import annotations

import inspect
import os

import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")

import cliquewise as cw  # noqa: E402
from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import UnsupportedError  # noqa: E402

B, T, K = 2, 3, 2
STRUCTURE = cw.Structure([2, 2, 2], [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
MASK = torch.tensor([[True, False, True], [True, True, True]])


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def chain(seed):
    return numbers(B, T, K, seed=seed), numbers(K, K, seed=seed + 1)


#: Tensors that modes transform: float64 and differentiable.
SCORES = {
    "nodes": numbers(B, T, K, seed=1),
    "transitions": numbers(K, K, seed=2),
    "begin": numbers(K, seed=3),
    "end": numbers(K, seed=4),
    "potentials": numbers(B, int(STRUCTURE.table_offsets[-1]), seed=5),
    "p": chain(6),
    "q": chain(8),
    "values": chain(10),
}
#: Everything else.
INPUTS = {
    "mask": MASK,
    "tags": torch.tensor([[0, 1, 1], [1, 0, 0]]),
    "labels": torch.tensor([[0, 1, 1], [1, 0, 0]]),
    "structure": STRUCTURE,
    "loss": "log",
    "k": 2,
    "n": 3,
}
#: Public names that are not functions of scores.
NOT_FUNCTIONS = {
    "first_pieces": "of token numbers",
    "TokenOutput": "a dict",
    "StructuredClassifier": "an estimator, which has its own tests",
    "DeepProblem": "a training objective, which has its own tests",
    "ProxLinear": "a solver",
    "SGD": "a solver",
    "Adam": "a solver",
}
#: Functions whose results are random or integers only.
NOT_DIFFERENTIABLE = {"sample"}


class Function:
    """A public function as one of its differentiable tensors, the first result with a gradient."""

    def __init__(self, name):
        self.name, self.function = name, getattr(cwt, name)
        self.names, self.tensors, self.fixed = [], [], {}
        for parameter in inspect.signature(self.function).parameters.values():
            key = parameter.name
            if key in SCORES:
                self.names.append(key)
                value = SCORES[key]
                self.tensors += value if isinstance(value, tuple) else [value]
            elif key in INPUTS and not (key == "labels" and "nodes" in self.names):
                self.fixed[key] = INPUTS[key]
            elif key == "labels":
                self.fixed[key] = INPUTS["tags"]
            elif parameter.default is inspect.Parameter.empty:
                raise AssertionError(f"{name}: add a value for {key!r} to INPUTS")

    def __call__(self, *tensors):
        left, given = list(tensors), dict(self.fixed)
        for key in self.names:
            if isinstance(SCORES[key], tuple):
                given[key] = left.pop(0), left.pop(0)
            else:
                given[key] = left.pop(0)
        if self.name == "sample":
            given["generator"] = torch.Generator().manual_seed(0)
        return first(self.function(**given))


class Layer(torch.nn.Module):
    """One method of a layer as a function of its first input; weights in float64."""

    def __init__(self, layer, method, scores, *more):
        super().__init__()
        self.name = f"{type(layer).__name__}.{method}"
        torch.manual_seed(0)
        self.layer, self.method, self.more = layer.double(), method, more
        for weight in layer.parameters():
            torch.nn.init.uniform_(weight, -1.0, 1.0)
        self.tensors = [scores]

    def forward(self, scores):
        more = [torch.Generator().manual_seed(0) if x is SEEDED else x for x in self.more]
        return first(getattr(self.layer, self.method)(scores, *more))


SEEDED = object()


def first(result):
    """The first floating-point tensor of a result, or the first tensor."""
    items = [result] if isinstance(result, torch.Tensor) else list(result)
    tensors = [x for x in items if isinstance(x, torch.Tensor)]
    return next((x for x in tensors if x.is_floating_point()), tensors[0] if tensors else result)


class Encoder(torch.nn.Module):
    """States of an encoder of subwords, passed through."""

    def forward(self, inputs_embeds, attention_mask=None):
        return (inputs_embeds,)


def token_loss(model):
    model.loss_of = lambda x: model(
        None, MASK.long(), INPUTS["tags"], inputs_embeds=x
    )["loss"]  # fmt: skip
    return model


class ChainDistribution(torch.nn.Module):
    """The distribution object as a layer, by its node scores."""

    def _of(self, nodes):
        return cwt.ChainDistribution(nodes, SCORES["transitions"], mask=MASK)

    def log_prob(self, nodes):
        return self._of(nodes).log_prob(INPUTS["tags"])

    def entropy(self, nodes):
        return self._of(nodes).entropy()

    def marginals(self, nodes):
        return self._of(nodes).marginals()

    def top_k(self, nodes):
        return self._of(nodes).top_k(2)

    def decode(self, nodes):
        return self._of(nodes).mode

    def kl(self, nodes):
        return torch.distributions.kl_divergence(self._of(nodes), self._of(0.5 * nodes))


def layers():
    for method in ("log_prob", "entropy", "marginals", "top_k", "decode", "kl"):
        yield Layer(ChainDistribution(), method, SCORES["nodes"])
    crf = cwt.ChainCRF(K, batch_first=True)
    nodes, tags = SCORES["nodes"], INPUTS["tags"]
    yield Layer(crf, "forward", nodes, tags, MASK)
    yield Layer(crf, "decode", nodes, MASK)
    yield Layer(crf, "predict", nodes, MASK)
    yield Layer(crf, "marginals", nodes, MASK)
    yield Layer(crf, "top_k", nodes, 2, MASK)
    yield Layer(crf, "sample", nodes, 2, MASK, SEEDED)
    yield Layer(crf.decoder(), "forward", nodes, MASK)
    labels, scores = INPUTS["labels"], numbers(B, 3, seed=12)
    sets = cwt.MultiLabelCRF(3)
    yield Layer(sets, "forward", scores, labels)
    yield Layer(sets, "decode", scores)
    yield Layer(sets, "marginals", scores)
    for loss in ("log", "hinge", "smooth_hinge", "softmax_margin"):
        case = Layer(cwt.CandidateLoss(loss), "forward", scores, torch.tensor([0, 2]))
        case.name += f"[{loss}]"
        yield case
    model = token_loss(cwt.TokenClassifier(Encoder(), K, hidden_size=4).eval())
    yield Layer(model, "loss_of", numbers(B, T, 4, seed=13))


FUNCTIONS = {
    name: Function(name)
    for name in cwt.__all__
    if name not in NOT_FUNCTIONS and inspect.isfunction(getattr(cwt, name))
}
LAYERS = {case.name: case for case in layers()}
CASES = FUNCTIONS | LAYERS
#: Cases whose result is labels, not numbers.
LABELS = {
    name for name in CASES if name.endswith((".decode", ".predict", ".sample")) or name == "sample"
}

CANNOT_TRANSFORM = {
    "graph_map", "MultiLabelCRF.decode",
}  # fmt: skip
CANNOT_EXPORT = {"graph_map", "graph_loss", "MultiLabelCRF.forward", "MultiLabelCRF.decode",
                 "ChainCRF.decode"}  # fmt: skip


def expected(case):
    return case(*(x.clone() for x in case.tensors))


def same(found, wanted, **tolerance):
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, **tolerance)
    else:
        assert found == wanted


def differentiable(name):
    if name in LABELS:
        pytest.skip("the result is labels")
    return CASES[name]


def test_every_public_name_has_cases():
    covered = set(FUNCTIONS) | set(NOT_FUNCTIONS)
    covered |= {name.split(".")[0] for name in LAYERS}
    assert set(cwt.__all__) == covered


@pytest.mark.parametrize("name", CASES)
def test_autograd_gives_the_gradient_of_finite_differences(name):
    case = differentiable(name)
    inputs = [x.clone().requires_grad_() for x in case.tensors]
    assert torch.autograd.gradcheck(case, inputs)


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_gradients_equal_finite_differences(name):
    case = differentiable(name)
    inputs = [x.clone().requires_grad_() for x in case.tensors]
    if not case(*inputs).requires_grad:
        pytest.skip("the result has no gradient")
    try:
        assert torch.autograd.gradgradcheck(case, inputs, gen_non_contig_grad_outputs=False)
    except RuntimeError as error:  # piecewise linear: the gradient does not depend on the input
        if "does not require grad" not in str(error) and "no graph" not in str(error):
            raise


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("name", CASES)
def test_values_are_the_same_without_gradients(name, mode):
    case = CASES[name]
    wanted = expected(case)
    with mode():
        found = expected(case)
    same(found, wanted.detach() if isinstance(wanted, torch.Tensor) else wanted)


@pytest.mark.parametrize("name", CASES)
def test_torch_func_grad_and_jvp_equal_autograd(name):
    case = differentiable(name)
    tensors = tuple(case.tensors)
    where = tuple(range(len(tensors)))

    def total(*x):
        return case(*x).sum()

    if name in CANNOT_TRANSFORM:
        with pytest.raises(UnsupportedError, match=r"torch\.func"):
            torch.func.grad(total, where)(*tensors)
        return
    inputs = [x.clone().requires_grad_() for x in tensors]
    wanted = torch.autograd.grad(total(*inputs), inputs)
    found = torch.func.grad(total, where)(*tensors)
    for left, right in zip(found, wanted):
        torch.testing.assert_close(left, right)
    directions = tuple(numbers(*x.shape, seed=20) for x in tensors)
    value, tangent = torch.func.jvp(total, tensors, directions)
    same(value, total(*tensors))
    slope = sum((x * v).sum() for x, v in zip(wanted, directions))
    torch.testing.assert_close(tangent, slope)


@pytest.mark.parametrize("name", CASES)
def test_torch_func_hessian_equals_finite_differences_of_the_gradient(name):
    case = differentiable(name)
    if name in CANNOT_TRANSFORM:
        with pytest.raises(UnsupportedError, match=r"torch\.func"):
            torch.func.hessian(lambda x: case(x, *case.tensors[1:]).sum())(case.tensors[0])
        return
    x, direction = case.tensors[0], numbers(*case.tensors[0].shape, seed=21)

    def total(x):
        return case(x, *case.tensors[1:]).sum()

    hessian = torch.func.hessian(total)(x)
    found = (hessian.reshape(x.numel(), -1) @ direction.flatten()).view(x.shape)
    step = 1e-6
    up, down = (torch.func.grad(total)(x + s * direction) for s in (step, -step))
    torch.testing.assert_close(found, (up - down) / (2 * step), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_vmap_equals_a_loop(name):
    case = CASES[name]
    stacked = [torch.stack([x, x.flip(0), 2 * x]) for x in case.tensors]
    if name in CANNOT_TRANSFORM | {"ChainCRF.decode"}:
        with pytest.raises(UnsupportedError, match=r"torch\.func"):
            torch.func.vmap(case)(*stacked)
        return
    if name in LABELS and name.endswith("sample"):
        with pytest.raises(RuntimeError, match="random"):
            torch.func.vmap(case)(*stacked)
        return
    found = torch.func.vmap(case)(*stacked)
    same(found, torch.stack([case(*(x[i] for x in stacked)) for i in range(3)]))


@pytest.mark.parametrize("name", CASES)
def test_torch_compile_gives_the_same_values_and_gradients(name):
    case = CASES[name]
    torch.compiler.reset()
    compiled = torch.compile(lambda *x: case(*(2.0 * t for t in x)), backend="eager")
    inputs = [x.clone().requires_grad_() for x in case.tensors]
    wanted = case(*(2.0 * x for x in inputs))
    found = compiled(*inputs)
    same(found, wanted)
    if isinstance(found, torch.Tensor) and found.requires_grad:
        left, right = (torch.autograd.grad(y.sum(), inputs) for y in (found, wanted))
        for a, b in zip(left, right):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", CASES)
def test_autocast_does_not_reduce_the_precision(name):
    case = CASES[name]
    if name.startswith("TokenClassifier"):
        pytest.skip("its linear layer is meant to run in half precision")
    wanted = expected(case)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = expected(case)
    same(found, wanted)


@pytest.mark.parametrize("name", CASES)
def test_export_gives_the_same_values_or_a_clear_error(name):
    case = CASES[name]
    module = case if isinstance(case, torch.nn.Module) else AsModule(case)
    inputs = tuple(case.tensors)
    if name in CANNOT_EXPORT:
        with pytest.raises(UnsupportedError, match="export"):
            torch.export.export(module, inputs)
        return
    if name.endswith("sample"):
        pytest.skip("random numbers of an exported program have their own generator")
    program = torch.export.export(module, inputs).module()
    others = tuple(1.5 * x for x in inputs)
    same(program(*others), module(*others))


class AsModule(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case = case

    def forward(self, *inputs):
        return self.case(*inputs)


@pytest.fixture(scope="module")
def one_process():
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29541")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["ChainCRF.forward", "MultiLabelCRF.forward"])
def test_ddp_gives_the_gradients_of_the_layer(one_process, name):
    case = LAYERS[name]
    x = case.tensors[0]
    case.zero_grad()
    case(x).backward()
    wanted = [p.grad.clone() for p in case.parameters()]
    case.zero_grad()
    torch.nn.parallel.DistributedDataParallel(case)(x).backward()
    for parameter, grad in zip(case.parameters(), wanted):
        torch.testing.assert_close(parameter.grad, grad)
