"""Clients that others generate from the OpenAPI document."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent.parent


@pytest.mark.all_only
@pytest.mark.slow
def test_a_linter_accepts_the_document_and_generated_clients_work():
    """They create, trigger, list, follow and cancel. The tools stay for the next run."""
    folder = HERE / ".cache" / "clients"

    done = subprocess.run(
        [sys.executable, "tools/clients.py", str(folder)],
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
