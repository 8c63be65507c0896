"""The model ``ids`` inside Triton: the SavedModel's signature. Runs in the Python backend."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import triton_python_backend_utils as backend

from ...limits import RequestError
from ...scoring.ids_request import check_request
from ...scoring.scorer import Scorer
from ...scoring.signature_inputs import Scores
from ...servables.servable import SCORE
from .merging import MergingWorker
from .model_settings import read_settings
from .responses import FINAL, answer, read_tensors, refuse


class TritonPythonModel:
    """Checks each request by itself; those that are sound are merged and scored."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the servable that config.pbtxt names."""
        servable, self.limits = read_settings(args)
        self.scorer = Scorer(servable)
        self.calls = _Counter("merlin_sim_ids_model_calls", "Calls of the model `ids`", args)
        self.requests = _Counter("merlin_sim_ids_requests", "Requests in these calls", args)
        self.rows = _Counter("merlin_sim_ids_rows", "Rows in these calls", args)
        self.worker = MergingWorker(self.scorer, self._observe)

    def execute(self, requests: Sequence[Any]) -> None:
        """Take requests; they are answered when they are scored."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                checked = check_request(read_tensors(request), self.scorer.columns, self.limits)
            except RequestError as error:
                sender.send(refuse(error), flags=FINAL)
                continue
            self.worker.submit(checked, _Answer(sender))

    def finalize(self) -> None:
        """Answer what was taken."""
        self.worker.close()

    def _observe(self, requests: int, rows: int) -> None:
        self.calls.add(1)
        self.requests.add(requests)
        self.rows.add(rows)


class _Answer:
    """Sends one request's scores, or what went wrong."""

    def __init__(self, sender: Any) -> None:
        self.sender = sender

    def __call__(self, result: Scores | Exception) -> None:
        if isinstance(result, Exception):
            self.sender.send(refuse(result), flags=FINAL)
        else:
            self.sender.send(answer({SCORE: result[:, None]}), flags=FINAL)


class _Counter:
    """A counter of one version among Triton's metrics."""

    def __init__(self, name: str, description: str, args: Mapping[str, str]) -> None:
        kind = backend.MetricFamily.COUNTER
        # A metric goes when its family does.
        self.family = backend.MetricFamily(name=name, description=description, kind=kind)
        labels = {"model": "ids", "version": args["model_version"], "process": str(os.getpid())}
        self.metric = self.family.Metric(labels=labels)

    def add(self, count: int) -> None:
        self.metric.increment(count)
