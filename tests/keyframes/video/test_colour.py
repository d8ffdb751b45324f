"""Are HDR videos and stretched pixels shown as a screen shows them, and only where that is asked for?"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import skimage.data
from typer.testing import CliRunner

from focus_eval import select_keyframes
from focus_eval.bench.matrix.cells import selection_specs
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.cli import app
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.colour import sdr_pixels
from tests.support.keyframes.hdr_clips import write_photograph

PHOTOGRAPH = skimage.data.astronaut()[:240, 100:340]
TRANSFERS = ["SDR", "PQ", "HLG"]


# RGB coded in 16 bits and mapped RGB: light of colour-science 0.4.7 (`eotf_BT2100_PQ`, `eotf_BT2100_HLG`, `RGB_to_RGB`
# from BT.2020 to BT.709), the EETF of BT.2390-11, 5.4.1, on the largest channel, gamma 2.4.
MAPPED = {
    "PQ": [
        ((0, 0, 0), (0.0, 0.0, 0.0)),
        ((4000, 4000, 4000), (10.46, 10.46, 10.46)),
        ((16000, 16000, 16000), (53.31, 53.31, 53.31)),
        ((33292, 33292, 33292), (189.29, 189.29, 189.29)),
        ((38010, 38010, 38010), (230.06, 230.06, 230.06)),
        ((49151, 49151, 49151), (255.0, 255.0, 255.0)),
        ((65535, 65535, 65535), (255.0, 255.0, 255.0)),
        ((40000, 30000, 20000), (250.44, 89.07, 20.96)),
        ((20000, 40000, 30000), (0.0, 244.2, 104.88)),
        ((30000, 20000, 50000), (50.48, 0.0, 255.0)),
        ((60000, 20000, 20000), (255.0, 0.0, 0.0)),
        ((25000, 30000, 28000), (56.44, 157.98, 132.54)),
    ],
    "HLG": [
        ((0, 0, 0), (0.0, 0.0, 0.0)),
        ((4000, 4000, 4000), (17.46, 17.46, 17.46)),
        ((16000, 16000, 16000), (69.85, 69.85, 69.85)),
        ((33292, 33292, 33292), (145.37, 145.37, 145.37)),
        ((38010, 38010, 38010), (169.47, 169.47, 169.47)),
        ((49151, 49151, 49151), (230.38, 230.38, 230.38)),
        ((65535, 65535, 65535), (255.0, 255.0, 255.0)),
        ((40000, 30000, 20000), (195.69, 125.78, 86.44)),
        ((20000, 40000, 30000), (0.0, 184.68, 130.45)),
        ((30000, 20000, 50000), (124.86, 76.91, 223.62)),
        ((60000, 20000, 20000), (254.81, 0.0, 49.45)),
        ((25000, 30000, 28000), (97.53, 132.06, 122.13)),
    ],
}


@pytest.mark.parametrize("transfer", MAPPED)
def test_coded_colours_are_mapped_as_the_reports_say(transfer):
    coded, expected = (np.array(colours) for colours in zip(*MAPPED[transfer], strict=True))
    assert np.abs(sdr_pixels(coded[None].astype(np.uint16), transfer)[0] - expected).max() < 0.6


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photographs")
    return {transfer: write_photograph(folder / f"{transfer}.mp4", PHOTOGRAPH, transfer) for transfer in TRANSFERS}


def picture_of(path, **options):
    return np.asarray(next(select_keyframes(path, k=1, **options).images()))


def saturation(picture):
    return np.ptp(picture.astype(int), axis=2).mean()


@pytest.mark.parametrize("transfer", ["PQ", "HLG"])
def test_a_selected_picture_of_hdr_has_the_contrast_and_saturation_of_sdr(photographs, transfer):
    screen_picture, stored_picture = (
        picture_of(photographs[transfer]),
        picture_of(photographs[transfer], backend="pyav:pixels=stored"),
    )
    assert screen_picture.std() > 0.95 * PHOTOGRAPH.std() > 1.1 * stored_picture.std()
    assert saturation(screen_picture) > 0.95 * saturation(PHOTOGRAPH) > 1.3 * saturation(stored_picture)


def test_pictures_of_sdr_stay_as_they_are(photographs):
    assert np.array_equal(picture_of(photographs["SDR"]), picture_of(photographs["SDR"], backend="pyav:pixels=stored"))


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_a_table_reads_stored_values_and_mapped_ones_have_a_key_of_their_own(photographs, transfer):
    """Relevance of mapped pixels must not be taken from a store for that of stored ones; SDR pixels are the same."""
    path = photographs[transfer]
    with open_video(path) as stored_reader, open_video(path, backend="pyav:pixels=display") as screen_reader:
        assert (stored_reader.decoder_version == screen_reader.decoder_version) == (transfer == "SDR")
        assert np.array_equal(stored_reader.read([0]), screen_reader.read([0])) == (transfer == "SDR")


def test_a_matrix_that_shows_pixels_as_a_screen_does_has_cells_of_its_own():
    plain, mapped = (
        {spec.configuration.get("video_backend") for spec in selection_specs(load_matrix("alpha", overrides=changes))}
        for changes in ({}, {"pixels": "display"})
    )
    assert (plain, mapped) == ({None}, {"pyav:pixels=display"})


def test_stretched_pixels_are_shown_square(tmp_path):
    path = write_photograph(tmp_path / "wide.mp4", PHOTOGRAPH[:120], "SDR", pixel_aspect=Fraction(4, 3))
    shown, stored = picture_of(path), picture_of(path, backend="pyav:pixels=stored")
    assert (shown.shape, stored.shape) == ((120, 320, 3), (120, 240, 3))
    # Wider, of the same colours.
    assert np.abs(shown.mean(axis=(0, 1)) - stored.mean(axis=(0, 1))).max() < 1


def test_verify_names_the_transfer(photographs, tmp_path):
    (tmp_path / "phone.mp4").write_bytes(photographs["HLG"].read_bytes())
    verified = CliRunner().invoke(app, ["videos", "verify", str(tmp_path)]).output
    assert "phone.mp4: HDR (HLG)" in verified
