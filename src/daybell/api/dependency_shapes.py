"""What answers say of a job's dependencies, for the OpenAPI document."""

from __future__ import annotations

from pydantic import BaseModel, Field


class WaitsFor(BaseModel):
    """How one dependency of a job stands."""

    job: str
    is_met: bool = Field(description="Whether the job need not wait for it.")
    detail: str
