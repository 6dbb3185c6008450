"""A FastAPI app that submits a job in a request, and answers before the work is done.

    laneway serve
    uvicorn fastapi_app:app

The submit is durable before the request is answered. A client that sends its request again with the same `Idempotency-Key`
gets the same job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Request, Response

from laneway import Client, problems


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with Client() as client:
        app.state.laneway = client
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/reports", status_code=202)
async def create_report(
    body: dict[str, Any],
    request: Request,
    response: Response,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    client: Client = request.app.state.laneway
    try:
        job = await client.submit("report", body, timeout="2m", idempotency_key=idempotency_key)
    except problems.QueueFull as full:
        headers = {"Retry-After": str(round(full.retry_after or 1))}
        raise HTTPException(503, "too many reports wait", headers=headers) from full
    except problems.IdempotencyMismatch as mismatch:
        raise HTTPException(422, "the key was used for another report") from mismatch
    response.headers["Location"] = f"/reports/{job.id}"
    return {"id": job.id, "state": job.state}


@app.get("/reports/{id}")
async def get_report(id: str, request: Request, wait: str = "0s") -> dict[str, Any]:
    """The report. `?wait=20s` answers when it is done, or after that time."""
    client: Client = request.app.state.laneway
    try:
        job = await client.get_job(id, wait=wait)
    except (problems.NotFound, problems.InvalidId) as missing:
        raise HTTPException(404, "there is no such report") from missing
    error = None if job.error is None else job.error.message
    return {"id": job.id, "state": job.state, "report": job.result, "error": error}
