"""The photographs of the demo's videos, with their packages, licences and photographers."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from focus_eval.core.errors import InvalidInput, MissingDependency
from focus_eval.core.extras import install_command

if TYPE_CHECKING:
    from PIL import Image

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Photograph:
    """A picture inside an installed package.

    Args:
        name: name in the demo.
        package, file: import name of the package and path below it.
        distribution: name to install if the package is missing.
        licence, credit: as the package states them.
        subject: left, top, right, bottom of the subject, as shares of width and height; the camera keeps most of it in
            view while the picture is evidence.
    """

    name: str
    package: str
    file: str
    distribution: str
    licence: str
    credit: str
    subject: Box = (0.1, 0.1, 0.9, 0.9)

    @property
    def path(self) -> Path:
        """Path of the picture on this machine; its package is found without importing it.

        Raises:
            MissingDependency: the package, or this file of it, is not installed.
        """
        spec = importlib.util.find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise MissingDependency(
                f"photograph {self.name!r} is part of {self.distribution}: {install_command('demo')}"
            )
        path = Path(spec.submodule_search_locations[0]) / self.file
        if not path.is_file():
            raise MissingDependency(
                f"photograph {self.name!r}: {self.package}/{self.file} is not in this installation of "
                f"{self.distribution}; install it again: pip install --force-reinstall {self.distribution}"
            )
        return path

    @property
    def digest(self) -> str:
        """Hash of the file's bytes, 16 hexadecimal digits."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]

    def open(self) -> Image.Image:
        """Return the picture in RGB.

        Raises:
            MissingDependency: the picture is not installed.
            InvalidInput: the file is not a picture.
        """
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(self.path) as file:
                picture: Image.Image = file.convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise InvalidInput(
                f"{self.path}: cannot be read as a picture ({error}); "
                f"install it again: pip install --force-reinstall {self.distribution}"
            ) from error
        return picture


def _skimage(name: str, file: str, licence: str, credit: str, subject: Box = (0.1, 0.1, 0.9, 0.9)) -> Photograph:
    """A photograph that comes with scikit-image."""
    return Photograph(name, "skimage", f"data/{file}", "scikit-image", licence, credit, subject)


_CC0, _PUBLIC = "CC0 1.0", "public domain"
_ALL = (
    _skimage("astronaut", "astronaut.png", _PUBLIC, "NASA; Eileen Collins", (0.2, 0.0, 0.95, 0.7)),
    _skimage("photographer", "camera.png", _CC0, "Lav Varshney", (0.05, 0.1, 0.75, 0.9)),
    _skimage("cat", "chelsea.png", _CC0, "Stéfan van der Walt", (0.1, 0.0, 0.8, 1.0)),
    _skimage("coffee", "coffee.png", _CC0, "Rachel Michetti, courtesy of Pikolo Espresso Bar", (0.1, 0.0, 0.85, 0.95)),
    _skimage("coins", "coins.png", "no known copyright restrictions", "Brooklyn Museum", (0.0, 0.0, 1.0, 1.0)),
    _skimage("rocket", "rocket.jpg", _PUBLIC, "SpaceX", (0.25, 0.1, 0.75, 0.95)),
    _skimage(
        "motorcycle",
        "motorcycle_left.png",
        "none stated; scikit-image takes in only CC0 and public domain",
        "Middlebury 2014 stereo data set: D. Scharstein and others",
        (0.1, 0.1, 0.85, 0.95),
    ),
    _skimage("horse", "horse.png", _CC0, "Andreas Preuss", (0.0, 0.0, 1.0, 0.7)),
    _skimage("galaxies", "hubble_deep_field.jpg", _PUBLIC, "NASA, ESA; Hubble eXtreme Deep Field"),
    _skimage("retina", "retina.jpg", _CC0, "M. Häggström", (0.0, 0.0, 1.0, 1.0)),
    _skimage("tissue", "ihc.png", "no known copyright restrictions", "Center for Microscopy and Molecular Imaging"),
    _skimage("bricks", "brick.png", _CC0, "CC0Textures"),
    _skimage("grass", "grass.png", _CC0, "linolafett"),
    _skimage("gravel", "gravel.png", _CC0, "CC0Textures"),
    _skimage("writing", "text.png", _PUBLIC, "Wikipedia, File:Corner.png", (0.0, 0.0, 1.0, 1.0)),
    _skimage("clock", "clock_motion.png", _PUBLIC, "Stéfan van der Walt", (0.2, 0.1, 0.8, 0.9)),
    Photograph(
        "temple",
        "sklearn",
        "datasets/images/china.jpg",
        "scikit-learn",
        "CC BY 2.0",
        "danielbuechele, flickr.com/photos/danielbuechele/6061409035",
        (0.05, 0.0, 0.7, 0.95),
    ),
    Photograph(
        "flower",
        "sklearn",
        "datasets/images/flower.jpg",
        "scikit-learn",
        "CC BY 2.0",
        "vultilion, flickr.com/photos/vultilion/6056698931",
        (0.2, 0.05, 0.85, 0.95),
    ),
    Photograph(
        "officer",
        "matplotlib",
        "mpl-data/sample_data/grace_hopper.jpg",
        "matplotlib",
        _PUBLIC,
        "US Navy; Grace Hopper",
        (0.1, 0.0, 0.9, 0.6),
    ),
)

PHOTOGRAPHS: dict[str, Photograph] = {photograph.name: photograph for photograph in _ALL}
