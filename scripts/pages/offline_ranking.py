"""Which photograph does the offline scorer find for which query, and how is its map to relevance fitted?

Prints the matrix of relevance over the photographs that scikit-image and scikit-learn carry, the area under the ROC
curve over random 16:9 views of them, and the logistic fit from cosine to "this view shows it": the two constants of
`focus_eval.keyframes.encoders.offline`.

    python -m scripts.pages.offline_ranking
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import skimage
import sklearn
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from focus_eval.keyframes.encoders.offline import MIDPOINT, STEEPNESS, OfflineScorer

SKIMAGE = (
    "chelsea.png coffee.png rocket.jpg motorcycle_left.png astronaut.png camera.png horse.png coins.png page.png "
    "moon.png brick.png grass.png hubble_deep_field.jpg retina.jpg ihc.png"
)
QUERIES = {
    "chelsea": ("a cat", "Which animal appears in the video?", "What kind of pet is shown?",
                "the kitten looks at the camera", "What colour is the cat?"),
    "coffee": ("a cup of coffee", "What drink is on the table?", "What does the person drink?", "a hot drink",
               "What beverage can be seen in the video?"),
    "rocket": ("a rocket launching", "What is being launched into the sky?", "a spacecraft on the launch pad",
               "Which vehicle takes off?", "a rocket"),
    "motorcycle_left": ("a motorcycle", "What vehicle appears?", "Which vehicle is parked in the garage?",
                        "a motorbike in a workshop", "What means of transport is shown in the video?"),
    "flower": ("a flower", "What kind of plant is shown?", "Which plant blooms in the video?", "a blossom in a garden",
               "What colour are the petals?"),
    "china": ("an old Chinese palace", "Which building can be seen?", "What kind of building is shown?", "a temple",
              "Which famous monument appears in the video?"),
}  # fmt: skip
VIEWS_EACH = 24


def main() -> None:
    pictures = photographs()
    scorer = OfflineScorer()
    print(scorer.revision)
    features = np.concatenate([scorer.embed(pixels[None]) for pixels in pictures.values()])
    print_matrix(scorer, features, list(pictures))
    rng = np.random.default_rng(0)
    views = np.stack([random_view(pixels, rng) for pixels in pictures.values() for _ in range(VIEWS_EACH)])
    picture_names = np.repeat(list(pictures), VIEWS_EACH)
    for encoder in (scorer, OfflineScorer(centred=False)):
        print_fit(encoder, encoder.embed(views), picture_names)
    print(f"in the code: midpoint {MIDPOINT}, steepness {STEEPNESS}")


def photographs() -> dict[str, np.ndarray]:
    """Return the RGB uint8 pixels of each photograph by name."""
    files = [Path(skimage.__file__).parent / "data" / name for name in SKIMAGE.split()]
    files += [Path(sklearn.__file__).parent / "datasets/images" / name for name in ("china.jpg", "flower.jpg")]
    return {file.stem: np.asarray(Image.open(file).convert("RGB")) for file in files}


def random_view(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cut a random 16:9 view, 55 to 100 % of the largest that fits, and resize it to 640 x 360."""
    height, width = pixels.shape[:2]
    share = rng.uniform(0.55, 1.0)
    cut_width = share * min(width, height * 16 / 9)
    cut_height = cut_width * 9 / 16
    cut_left, top = rng.uniform(0, width - cut_width), rng.uniform(0, height - cut_height)
    box = (cut_left, top, cut_left + cut_width, top + cut_height)
    return np.asarray(Image.fromarray(pixels).resize((640, 360), Image.Resampling.BICUBIC, box=box))


def print_matrix(scorer: OfflineScorer, features: np.ndarray, names: list[str]) -> None:
    """Print the relevance of every photograph to every query, with a star where the right one ranks first."""
    print(f"\n{'':44s}" + " ".join(f"{name[:6]:>6s}" for name in names))
    n_first = 0
    for right, queries in QUERIES.items():
        for query in queries:
            relevance = scorer.relevance(features, query)
            is_first = names[int(relevance.argmax())] == right
            n_first += is_first
            print(f"{'*' if is_first else ' '} {query[:41]:42s}" + " ".join(f"{value:6.2f}" for value in relevance))
    print(f"the right photograph first: {n_first} of {sum(map(len, QUERIES.values()))} queries\n")


def print_fit(scorer: OfflineScorer, features: np.ndarray, picture_names: np.ndarray) -> None:
    """Print the mean area under the ROC curve over queries and the balanced logistic fit over all pairs."""
    pairs = [
        (scorer.logits(features, query), picture_names == right)
        for right, queries in QUERIES.items()
        for query in queries
    ]
    areas = [roc_auc_score(is_shown, cosine) for cosine, is_shown in pairs]
    cosine, is_shown = (np.concatenate(part) for part in zip(*pairs, strict=True))
    fit = LogisticRegression(class_weight="balanced", C=1e6).fit(cosine[:, None], is_shown)
    steepness = fit.coef_[0, 0]
    midpoint = -fit.intercept_[0] / steepness
    print(
        f"{'centred' if scorer.centred else 'plain'}: area under the curve {np.mean(areas):.4f} (least "
        f"{min(areas):.3f}); fit: midpoint {midpoint:.3f}, steepness {steepness:.1f}"
    )


if __name__ == "__main__":
    main()
