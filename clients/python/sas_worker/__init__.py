# SPDX-License-Identifier: PostgreSQL
"""Runs of sas from Python: submit, wait and signal on a connection of yours; a worker for steps of kind task."""
from .client import BatchOptions, Options, Run, Submitted, signal, signal_key, submit, submit_batch, wait
from .task import HandBack, InDoubt, Lost, Permanent, Task
from .worker import Worker

__all__ = ["BatchOptions", "HandBack", "InDoubt", "Lost", "Options", "Permanent", "Run", "Submitted", "Task", "Worker", "signal",
           "signal_key", "submit", "submit_batch", "wait"]
