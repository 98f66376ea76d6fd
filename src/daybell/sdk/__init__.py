"""The SDK: App, task, workflow, Context. Reading order: app, task, context, workflow."""

from __future__ import annotations
