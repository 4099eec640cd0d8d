"""Training and tagging beside CRFsuite: same features, same objective, one run, one thread.

    python -m benchmarks.tagging --data DIR [--dataset conll2000|conll2003|ocr]
                                 [--pairs seen|all|both] [--algorithms lbfgs,l2sgd,ap]

Both sides get the same attributes (CRFsuite as strings) and minimize the same function,
``sum of losses + c2 ||w||^2`` with c2 = 1 (our ``C = 1 / (2 c2)``), with weights for the pairs
seen in training or for all pairs, and for all transitions. Each training runs in a process
of its own, so that its peak memory can be read. The optimum is bracketed by our own run
to a relative gap of 1e-6, and every curve is measured against it. CRFsuite's L-BFGS
curve is what it logs at each iteration (``l2sgd`` logs a sum over changing weights and ``ap``
another loss altogether: neither has a curve here, only a total time);
ours is the primal objective after each epoch, with the clock stopped while it is evaluated;
"fit" is a whole certified run at tol = 1e-3, its checks included.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import resource
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.common import print_json, print_table

LEVELS = (1e-1, 1e-2, 1e-3, 1e-4)
C2 = 1.0


# ---- data: the same for both sides


def load(name: str, folder: Path):
    """Train and test as (Dataset, labels, classes, vocabulary)."""
    from cliquewise.data import Labels, Template, TemplateEncoder, read_conll

    if name == "ocr":
        return load_ocr(folder)
    files = {
        "conll2000": ("conll2000/train.txt.gz", "conll2000/test.txt.gz", "chunking"),
        "conll2003": ("conll2003/eng.train.gz", "conll2003/eng.testb.gz", "ner"),
    }[name]
    train, y = read_conll(folder / files[0]).split_labels()
    test, y_test = read_conll(folder / files[1]).split_labels()
    template = Template.builtin(files[2], n_columns=train.n_columns)
    encoder = TemplateEncoder(template)
    data, data_test = encoder.fit_transform(train), encoder.transform(test)
    labels = Labels.fit(y)
    numbers, _ = labels.encode(y, data.offsets)
    return data.with_labels(numbers), data_test, y_test, labels.classes, encoder.vocabulary


def load_ocr(folder: Path):
    """Letters as the set of their black pixels; folds 1-9 for training, fold 0 for testing."""
    from cliquewise.data import FeatureEncoder, Labels
    from cliquewise.data.loaders import load_ocr as read

    split = read(folder)
    encoder = FeatureEncoder()
    data, data_test = encoder.fit_transform(split.X_train), encoder.transform(split.X_test)
    labels = Labels.fit(split.y_train)
    numbers, _ = labels.encode(split.y_train, data.offsets)
    names = [f"p{i}" for i in range(data.n_features)]
    return data.with_labels(numbers), data_test, split.y_test, labels.classes, names


def strings(data, names) -> list[list[list[str]]]:
    """The attributes of every token, as CRFsuite and our own encoder take them."""
    words = [names[i] for i in data.indices.tolist()]
    tokens = [words[a:b] for a, b in pairwise(data.indptr.tolist())]
    return [tokens[a:b] for a, b in pairwise(data.offsets.tolist())]


# ---- workers: each in its own process


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def train_crfsuite(queue, name, folder, pairs, algorithm, iterations, path):
    import pycrfsuite

    data, _, _, classes, names = load(name, folder)
    base = peak_mib()

    class Recorder(pycrfsuite.BaseTrainer):
        curve: list[tuple[float, float]] = []  # noqa: RUF012
        started = 0.0

        def message(self, message):
            found = re.match(r"Loss: ([-+.\deinf]+)", message)
            if found and algorithm == "lbfgs":
                self.curve.append((time.perf_counter() - self.started, float(found.group(1))))

    trainer = Recorder()
    trainer.select(algorithm)
    offsets, truth = data.offsets.tolist(), [classes[i] for i in data.labels.tolist()]
    for i in range(len(data)):
        one = strings(data.subset(np.array([i])), names)[0]
        trainer.append(
            pycrfsuite.ItemSequence(one), [str(t) for t in truth[offsets[i] : offsets[i + 1]]]
        )
    trainer.set("feature.possible_transitions", True)
    trainer.set("feature.possible_states", pairs == "all")
    if algorithm in ("lbfgs", "l2sgd"):
        trainer.set("c2", C2)
    if algorithm == "lbfgs":
        trainer.set("c1", 0.0)
        trainer.set("epsilon", 1e-7)
        trainer.set("delta", 1e-7)
    trainer.set("max_iterations", iterations)
    trainer.started = time.perf_counter()
    trainer.train(path)
    seconds = time.perf_counter() - trainer.started
    queue.put({"curve": trainer.curve, "seconds": seconds, "peak": peak_mib(), "base": base})


def ours(name, folder, pairs):
    from cliquewise.models.chain import ChainModel
    from cliquewise.problems.chain import ChainProblem

    data, _, _, classes, _ = load(name, folder)
    base = peak_mib()
    begin = time.perf_counter()
    model = ChainModel.build(
        data, len(classes), feature_pairs=pairs, intercept=False, boundaries=False
    )
    problem = ChainProblem(model, data, C=1 / (2 * C2))
    return problem, base, time.perf_counter() - begin


def warm_up(problem):
    """Compile, or load from the cache, on the first few sentences."""
    from cliquewise.problems.chain import ChainProblem
    from cliquewise.solvers import get
    from cliquewise.solvers.run import run

    small = ChainProblem(problem.model, problem.data.subset(np.arange(3)), problem.C)
    run(small, get("sdca"), max_epochs=2)


def train_ours(queue, name, folder, pairs, path):
    """A certified run at tol = 1e-3, and the curve of another run, clock stopped at each look."""
    from cliquewise.solvers import get
    from cliquewise.solvers.run import run

    problem, base, setup = ours(name, folder, pairs)
    warm_up(problem)
    begin = time.perf_counter()
    fit = run(problem, get("sdca"), tol=1e-3, random_state=0)
    seconds = time.perf_counter() - begin + setup
    peak = peak_mib()
    np.save(path, fit.weights)
    solver, rng = get("sdca"), np.random.default_rng(0)
    begin = time.perf_counter()
    state = solver.init(problem)
    used, epochs, curve = setup + time.perf_counter() - begin, 0.0, []
    estimate = np.inf
    while not estimate < 1e-5 and epochs < 100:
        begin = time.perf_counter()
        info = solver.step(problem, state, rng)
        used += time.perf_counter() - begin
        epochs += info.epochs
        curve.append((used, solver.certify(problem, state).primal * problem.n_examples, epochs))
        estimate = info.estimate
    tight = run(problem, solver, tol=1e-6, random_state=1, max_epochs=200, warm=state)
    n = problem.n_examples
    queue.put(
        {
            "curve": curve, "seconds": seconds, "peak": peak, "base": base,
            "gap": fit.certificate.gap, "epochs": fit.epochs,
            "optimum": (tight.certificate.dual * n, tight.certificate.primal * n),
            "weights": problem.dimension,
        }
    )  # fmt: skip


def in_process(function, *arguments):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=function, args=(queue, *arguments))
    process.start()
    result = queue.get()
    process.join()
    return result


# ---- results


def time_to(curve, optimum, level):
    """Seconds (and epochs or iterations) until the relative suboptimality is below a level."""
    for step, point in enumerate(curve, 1):
        if (point[1] - optimum) / abs(optimum) <= level:
            return point[0], point[2] if len(point) > 2 else step
    return np.nan, np.nan


def best_of(function, repeats=5):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def quality(name, y_test, predicted):
    from cliquewise.metrics import span_f1, token_accuracy

    if name == "ocr":
        return token_accuracy(y_test, predicted)
    return span_f1(y_test, predicted)


def compare_tagging(name, folder, pairs, crf_path, our_path):
    """Test quality of both models, and tokens per second from strings and from a CSR matrix."""
    import pycrfsuite

    from cliquewise import SequenceTagger
    from cliquewise.data import FeatureEncoder, Labels
    from cliquewise.data.conversion import SequenceEncoder
    from cliquewise.models.chain import ChainModel

    data, data_test, y_test, classes, names = load(name, folder)
    tagger = SequenceTagger(intercept=False, boundary_weights=False)
    encoder = SequenceEncoder()
    encoder.inner = FeatureEncoder.from_state(
        {"kind": "attributes", "vocabulary": list(names), "n_features": len(names),
         "n_hash": None, "min_count": 1}
    )  # fmt: skip
    model = ChainModel.build(
        data, len(classes), feature_pairs=pairs, intercept=False, boundaries=False
    )
    tagger._chain = tagger._make_chain(encoder, Labels(classes), model, np.load(our_path))
    peer = pycrfsuite.Tagger()
    peer.open(crf_path)
    sentences = strings(data_test, names)
    matrices = data_test
    predicted = tagger.predict(sentences)
    theirs = [peer.tag(s) for s in sentences]
    kind = type(classes[0])
    theirs = [[kind(t) for t in s] for s in theirs]
    tokens = data_test.n_tokens
    return {
        "ours": quality(name, y_test, predicted),
        "peer": quality(name, y_test, theirs),
        "ours_strings": tokens / best_of(lambda: tagger.predict(sentences)),
        "ours_csr": tokens / best_of(lambda: tagger.predict(matrices)),
        "peer_strings": tokens / best_of(lambda: [peer.tag(s) for s in sentences]),
    }


def study(name, folder, pairs, algorithms, iterations):
    with tempfile.TemporaryDirectory() as scratch:
        weights = os.path.join(scratch, "w.npy")
        mine = in_process(train_ours, name, folder, pairs, weights)
        low, high = mine["optimum"]
        optimum = 0.5 * (low + high)
        print(f"\n{name}, {pairs} pairs: {mine['weights']} weights")
        print(f"optimum in [{low:.3f}, {high:.3f}]")
        rows, ratios = [], {}
        curves = {"cliquewise sdca": mine["curve"]}
        rows.append(_row("cliquewise sdca", mine, optimum))
        peers = {}
        for algorithm in algorithms:
            path = os.path.join(scratch, f"{algorithm}.crfsuite")
            peers[algorithm] = in_process(
                train_crfsuite, name, folder, pairs, algorithm, iterations, path
            )
            curves[f"CRFsuite {algorithm}"] = peers[algorithm]["curve"]
            rows.append(_row(f"CRFsuite {algorithm}", peers[algorithm], optimum))
        columns = [
            "",
            *(f"s to {x:g}" for x in LEVELS),
            "passes to 1e-3",
            "total s",
            "peak MiB",
            "MiB over data",
        ]
        print_table(f"Training, {name}, {pairs} pairs", columns, rows)
        print(
            f"certified run at tol = 1e-3: {mine['seconds']:.2f} s, gap {mine['gap']:.2e}, "
            f"{mine['epochs']:.0f} epochs"
        )
        if "lbfgs" in peers:
            for level in LEVELS:
                ratios[f"to {level:g}"] = (
                    time_to(peers["lbfgs"]["curve"], optimum, level)[0]
                    / time_to(mine["curve"], optimum, level)[0]
                )
            ratios["certified"] = (
                time_to(peers["lbfgs"]["curve"], optimum, 1e-3)[0] / mine["seconds"]
            )
            ratios["memory"] = mine["peak"] / peers["lbfgs"]["peak"]
            tag = compare_tagging(
                name, folder, pairs, os.path.join(scratch, "lbfgs.crfsuite"), weights
            )
            measure = "token accuracy" if name == "ocr" else "span F1"
            print(f"test {measure}: ours {tag['ours']:.4f}, CRFsuite {tag['peer']:.4f}")
            print(
                f"tagging, tokens/s: ours {tag['ours_strings']:.0f} from strings, "
                f"{tag['ours_csr']:.0f} from a matrix; CRFsuite {tag['peer_strings']:.0f}"
            )
            ratios["tagging from strings"] = tag["ours_strings"] / tag["peer_strings"]
            ratios["tagging from a matrix"] = tag["ours_csr"] / tag["peer_strings"]
            ratios["quality"] = tag["ours"] - tag["peer"]
        return ratios, curves, optimum


def _row(label, result, optimum):
    times = [time_to(result["curve"], optimum, level) for level in LEVELS]
    return [
        label,
        *(f"{t:.2f}" for t, _ in times),
        f"{times[2][1]:.0f}",
        f"{result['seconds']:.2f}",
        f"{result['peak']:.0f}",
        f"{result['peak'] - result['base']:.0f}",
    ]


def plot(curves, optimum, title, path):
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("no plot: pip install matplotlib")
        return
    figure, axes = plt.subplots(figsize=(6, 4))
    for label, curve in curves.items():
        points = np.array([(p[0], (p[1] - optimum) / optimum) for p in curve])
        points = points[points[:, 1] > 0]
        if len(points):
            axes.loglog(points[:, 0], points[:, 1], marker=".", label=label)
    axes.set(xlabel="seconds", ylabel="relative suboptimality", title=title)
    axes.legend()
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"drawn: {path}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("CLIQUEWISE_DATA"))
    parser.add_argument("--dataset", default="conll2000", choices=["conll2000", "conll2003", "ocr"])
    parser.add_argument("--pairs", default="both", choices=["seen", "all", "both"])
    parser.add_argument("--algorithms", default="lbfgs,l2sgd,ap")
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()
    if not args.data:
        parser.error("give --data or set CLIQUEWISE_DATA")
    results = {}
    for pairs in ("seen", "all") if args.pairs == "both" else (args.pairs,):
        ratios, curves, optimum = study(
            args.dataset, Path(args.data), pairs, args.algorithms.split(","), args.iterations
        )
        results[pairs] = ratios
        plot(
            curves,
            optimum,
            f"{args.dataset}, {pairs} pairs",
            Path(args.out) / f"tagging_{args.dataset}_{pairs}.png",
        )
    print_json({"dataset": args.dataset, "ratios": results})


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    main()
