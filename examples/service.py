"""A web service that adapts one model per camera.

    pip install fastapi uvicorn
    python examples/service.py --port 8000 --states states

    curl --data-binary @image.png 'localhost:8000/predict?camera=gate'
    curl -X POST 'localhost:8000/reset?camera=gate'
    curl 'localhost:8000/metrics?camera=gate'

Each camera has its own statistics, because fog at one says nothing about the others. States are
saved in files, so that a restarted service resumes. A body that is no image is an error 400, and
changes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import torch
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse
from PIL import Image, UnidentifiedImageError
from torch import Tensor

import realistic_tta
from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.models.checkpoints import load_model
from realistic_tta.serving.prometheus import prometheus_text

SIDE = 32  # pixels of the model's images
CAMERA = re.compile(r"[\w-]{1,64}")


class Cameras:
    """One adapted model per camera, resumed from its file or made anew."""

    def __init__(self, states: Path) -> None:
        self._model = load_model("cifar10")  # your trained model goes here
        self._states = states
        self._adapted: dict[str, realistic_tta.ServedModel] = {}
        self._lock = threading.Lock()

    def __getitem__(self, camera: str) -> realistic_tta.ServedModel:
        """The adapted model of a camera."""
        if not CAMERA.fullmatch(camera):
            raise HTTPException(400, "camera: expected 1 to 64 letters, digits, _ or -")
        with self._lock:
            if camera not in self._adapted:
                path = self._states / camera
                if path.exists():
                    adapted = realistic_tta.load(path, self._model)
                else:
                    adapted = realistic_tta.adapt(self._model, guard=True)
                adapted.autosave(path, every_batches=100, every_seconds=10)
                self._adapted[camera] = adapted
            return self._adapted[camera]

    def metrics(self, camera: str) -> str:
        """The health of one camera, for Prometheus."""
        adapted = self._adapted.get(camera)
        if adapted is None:
            raise HTTPException(404, "no image of this camera has come")
        return prometheus_text(adapted.health(), camera=camera)

    def save(self) -> None:
        """Saves every state, at the end of the service."""
        for name, adapted in self._adapted.items():
            adapted.save(self._states / name)


def read_image(body: bytes) -> Tensor:
    """Return an image file as a batch of one, (1, 3, 32, 32) in [0, 1]."""
    try:
        image = Image.open(io.BytesIO(body)).convert("RGB").resize((SIDE, SIDE))
    except (UnidentifiedImageError, OSError) as error:
        raise HTTPException(400, f"the body is no image: {error}") from None
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None] / 255


def service(states: Path) -> FastAPI:
    """Return the application."""
    states.mkdir(parents=True, exist_ok=True)
    cameras, classes = Cameras(states), load_bundled_images().classes

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        cameras.save()

    app = FastAPI(lifespan=lifespan)

    @app.post("/predict")
    async def predict(request: Request, camera: str) -> dict[str, object]:
        image = read_image(await request.body())
        (logits,) = await run_in_threadpool(lambda: cameras[camera](image))
        probabilities = logits.softmax(dim=0)
        best = int(probabilities.argmax())
        return {"label": classes[best], "probability": round(probabilities[best].item(), 4)}

    @app.post("/reset")
    def reset(camera: str) -> dict[str, str]:
        cameras[camera].reset()
        return {"reset": camera}

    @app.get("/metrics", response_class=PlainTextResponse)
    def metrics(camera: str) -> str:
        return cameras.metrics(camera)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve one adapted model per camera.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--states", type=Path, default=Path("states"), help="folder of the states")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    uvicorn.run(service(arguments.states), host="127.0.0.1", port=arguments.port)


if __name__ == "__main__":
    main()
