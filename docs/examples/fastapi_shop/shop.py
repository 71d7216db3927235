"""A shop that answers at once and ships later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from pyjobs import Jobs

jobs = Jobs()  # on the database that PYJOBS_DATABASE_URL or pyproject.toml names


@jobs.job(queue="warehouse", timeout="1m")
async def ship(order: UUID, item: str) -> None:
    print(f"shipped {item} of order {order}")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    jobs.close()


app = FastAPI(lifespan=lifespan)


class Order(BaseModel):
    id: UUID
    item: str


@app.post("/orders", status_code=202)
async def order(order: Order) -> dict[str, UUID]:
    """An order that is sent twice is shipped once: the second answer names the same job."""
    args = {"order": order.id, "item": order.item}
    return {"job": await jobs.aenqueue("ship", args, unique_key=f"ship:{order.id}", unique_for="ever")}


@app.get("/jobs/{id}")
def state(id: UUID) -> dict[str, str]:
    """Not ``async``: it reads the database, so FastAPI runs it in a thread."""
    job = jobs.get(id)
    if job is None:
        raise HTTPException(404)
    return {"state": job.state}
