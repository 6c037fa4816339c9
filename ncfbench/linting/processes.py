"""Processes that are simulated in one, for losses that gather vectors from all of them.

PyTorch's are threads of its own test backend, so that every collective works, with its gradient;
JAX's are an axis of ``jax.vmap``. Each process has its part of a scene's rows, and gradients are
averaged over processes, as data-parallel training does.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ncfbench.errors import UsageError, reason
from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.frameworks import AXIS, Arrays, Jax, Torch
from ncfbench.linting.scenes import Float, Scene, by_items, by_users
from ncfbench.linting.signature import VECTORS

COUNT = 2
"""Processes."""
TIMEOUT_S = 300.0


def can_simulate(evaluator: Evaluator) -> bool:
    """Return whether the loss may gather at all: it takes vectors, and has a framework."""
    loss = evaluator.loss
    if not loss.has("users") or evaluator.layout.labels == "pairs":
        return False
    if isinstance(evaluator.framework, Jax):
        return loss.has("axis_name")
    return isinstance(evaluator.framework, Torch)


def gathers(evaluator: Evaluator, scene: Scene) -> bool:
    """Return whether a process's loss depends on the vectors of another, and find the shape of
    masks.
    """
    try:
        return _gathers(evaluator, scene)
    except Exception:
        if not evaluator.loss.has("linked") or evaluator.has_wide_masks:
            raise
    evaluator.has_wide_masks = True
    return _gathers(evaluator, scene)


def _gathers(evaluator: Evaluator, scene: Scene) -> bool:
    arrays = evaluator.arrays(scene, scene.coordinates())
    (name,) = [name for name, role in evaluator.loss.roles.items() if role == "items"]
    other = np.array(arrays[name])
    other[-1] = other[-1] * 0.5 + 0.3 * other[-2]
    before, after = _values(evaluator, [arrays, {**arrays, name: other}])
    return not np.isclose(before[0], after[0], rtol=1e-7)


def scaling(evaluator: Evaluator, scene: Scene) -> float:
    """Return a process's loss over that of its rows without the other processes."""
    arrays = evaluator.arrays(scene, scene.coordinates())
    alone = evaluator.value(scene.rows(slice(scene.b // COUNT)))
    return _values(evaluator, [arrays])[0][0] / alone if alone else 1.0


def outcome(evaluator: Evaluator, scene: Scene) -> Float:
    """Return the processes' losses and the mean of their gradients, as one vector."""
    arrays = evaluator.arrays(scene, scene.coordinates())
    names = [name for name, role in evaluator.loss.roles.items() if role in VECTORS]
    gradients = _gradients(evaluator, arrays, names)
    return np.concatenate([*map(np.ravel, _values(evaluator, [arrays])), *map(np.ravel, gradients)])


def gathered(evaluator: Evaluator, scene: Scene) -> tuple[tuple[Float, Float], tuple[Float, Float]]:
    """Return how a scene's rows push each pair when they are spread over processes.

    Returns:
        The pushes as they reach the vectors of items and of users, by the mean of the processes'
        gradients, and as they should, of the mean of the processes' losses: float[b, columns].
    """
    coordinates = scene.coordinates()
    arrays = evaluator.arrays(scene, coordinates)
    by_role = {role: name for name, role in evaluator.loss.roles.items()}
    names = [by_role[role] for role in ("users", "items", "negatives") if role in by_role]
    users, *columns = _gradients(evaluator, arrays, names)
    width = users.shape[-1]
    column = np.concatenate([part.reshape(-1, width) for part in columns])
    on_users = by_items(users, scene, coordinates)
    true = evaluator.true_pushes(
        scene, lambda some: [float(np.mean(losses)) for losses in _values(evaluator, some)]
    )
    return (by_users(column, scene, coordinates), on_users), true


def _values(evaluator: Evaluator, cases: Sequence[Arrays]) -> list[list[float]]:
    """Return each case's losses, one of each process."""
    framework = evaluator.framework
    if isinstance(framework, Jax):
        with framework.precise():
            call = evaluator.call(0, COUNT)

            def mapped(arrays: Any) -> Any:
                return framework.mapped(call, {**arrays, **constants}, COUNT)

            _, constants = _jax_parts(evaluator, cases[0])
            compiled = framework.jax.jit(mapped)
            found = [compiled(_jax_parts(evaluator, case)[0]) for case in cases]
        return [np.asarray(losses, np.float64).tolist() for losses in found]

    def task(rank: int) -> list[float]:
        call = evaluator.call(rank, COUNT)
        return [framework.value(call, _part(evaluator, arrays, rank)) for arrays in cases]

    return [list(losses) for losses in zip(*_threads(task), strict=True)]


def _gradients(evaluator: Evaluator, arrays: Arrays, names: Sequence[str]) -> list[Float]:
    """Return the mean over processes of the gradients by some arrays, which only one has each."""
    framework = evaluator.framework
    if isinstance(framework, Jax):
        with framework.precise():
            call = evaluator.call(0, COUNT)
            some, constants = _jax_parts(evaluator, arrays)

            def of_process(wanted: Any, rest: Any) -> Any:
                return call(**dict(zip(names, wanted, strict=True)), **rest, **constants)

            split = {n: part.reshape(COUNT, -1, *part.shape[1:]) for n, part in some.items()}
            wanted = [split.pop(name) for name in names]
            gradient = framework.jax.vmap(framework.jax.grad(of_process), axis_name=AXIS)
            found = framework.jax.jit(gradient)(wanted, split)
        return [np.asarray(part, np.float64).reshape(-1, *part.shape[2:]) / COUNT for part in found]

    def task(rank: int) -> list[Float]:
        call = evaluator.call(rank, COUNT)
        return framework.gradients(call, _part(evaluator, arrays, rank), names)

    return [np.concatenate(parts) / COUNT for parts in zip(*_threads(task), strict=True)]


def _part(evaluator: Evaluator, arrays: Arrays, rank: int) -> dict[str, Any]:
    """Return one process's arguments."""
    roles, constants = evaluator.loss.roles, evaluator.constants(rank, COUNT)
    part: dict[str, Any] = {}
    for name, array in arrays.items():
        role = roles[name]
        if role in constants:
            part[name] = constants[role]
        elif role == "labels":
            part[name] = array[: len(array) // COUNT]
        else:
            part[name] = np.split(array, COUNT)[rank]
            if role == "linked" and not evaluator.has_wide_masks:
                part[name] = np.split(part[name], COUNT, axis=1)[rank]
    return part


def _jax_parts(evaluator: Evaluator, arrays: Arrays) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return arrays whose rows are those of all processes, and what is the same in all."""
    parts = [_part(evaluator, arrays, rank) for rank in range(COUNT)]
    roles, constants = evaluator.loss.roles, evaluator.constants(0, COUNT)
    some = {
        name: np.concatenate([np.atleast_1d(part[name]) for part in parts])
        for name in arrays
        if roles[name] not in constants
    }
    rest = {name: parts[0][name] for name in arrays if name not in some}
    return some, rest


def _threads(task: Callable[[int], Any]) -> list[Any]:
    """Run a task in each of :data:`COUNT` processes of PyTorch, and return what they return."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed import multi_threaded_pg as threaded

    results: list[Any] = [None] * COUNT
    errors: list[BaseException] = []
    hook = sys.excepthook  # to which each process group adds its own
    store = dist.HashStore()

    def run(rank: int) -> None:
        try:
            dist.init_process_group("threaded", rank=rank, world_size=COUNT, store=store)
            results[rank] = task(rank)
        except BaseException as error:  # noqa: BLE001 - said below, in the calling thread
            errors.append(error)
            threaded.ProcessLocalGroup.exception_handle(error)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    threaded._install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    try:
        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(COUNT)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
        is_stuck = any(thread.is_alive() for thread in threads)
    finally:
        threaded.ProcessLocalGroup.reset()
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        threaded._uninstall_threaded_pg()
        sys.excepthook = hook
    if errors or is_stuck:
        why = f"{type(errors[0]).__name__}: {reason(errors[0])}" if errors else "it waits for ever"
        raise UsageError(f"The loss fails on {COUNT} processes: {why}.")
    return results
