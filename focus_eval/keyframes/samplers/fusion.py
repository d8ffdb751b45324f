"""Where is evidence, given a scan of the whole video and sparse pulls of a better encoder?

Scan and pulls are modelled as two Gaussian channels. Away from evidence their correlation is `rho`. An event that
raises the channel of the pulls by `h` standard deviations raises the scan by `q h`. The density of evidence at a moment
is the likelihood ratio of "event" to "no event", averaged over the unknown value of the pulls' channel there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from focus_eval.core.types import FloatArray
from focus_eval.keyframes.samplers.coverage import CONTRAST_SECONDS, bridge_mean, bridge_variance


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Assumptions about events and encoders before a video is seen.

    Args:
        h: height of an event, in standard deviations.
        cap: height above which values are clipped, so that no single moment outweighs all others.
        rho_prior, prior_pulls: assumed correlation of the two encoders, and the number of pulls whose weight it has.
        fade_seconds: time constant over which a pull informs its surroundings.
        nugget: share of a pull's deviation from its expected value that tells nothing about neighbouring frames.
    """

    h: float = 1.5
    cap: float = 4.0
    rho_prior: float = 0.45
    prior_pulls: float = 32.0
    fade_seconds: float = 3.0
    nugget: float = 0.15


@dataclass(frozen=True, eq=False)
class Regression:
    """Regression of the pulls' logits on the scan.

    Args:
        slope: change of the logits per standard deviation of the scan.
        residuals: logits minus their mean and the part that the scan predicts, `(n_pulls,)`.
        residual_variance: variance of the residuals, corrected for two fitted values, at least 1e-4.
    """

    slope: float
    residuals: FloatArray
    residual_variance: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logits over the video."""
        return float(np.sqrt(self.slope**2 + self.residual_variance))

    @property
    def rho(self) -> float:
        """Correlation of the two channels, in [0, .95]."""
        return float(np.clip(self.slope / self.sigma, 0.0, 0.95))

    @property
    def q(self) -> float:
        """Assumed ratio of an event's height in the scan to that in the logits: `2 rho`, at most .9, at least `rho`."""
        return max(self.rho, min(0.9, 2.0 * self.rho))


def standardised_scan(times: FloatArray, at: FloatArray, scan_times: FloatArray, values: FloatArray) -> FloatArray:
    """Return the scan interpolated at `at`, in robust standard deviations of the scan at `times`, shape like `at`."""
    low, median, high = np.quantile(np.interp(times, scan_times, values), [0.159, 0.5, 0.841])
    standardised: FloatArray = (np.interp(at, scan_times, values) - median) / max(0.5 * (high - low), 1e-9)
    return standardised


def regression(scan: FloatArray, logits: FloatArray, prior: Prior) -> Regression:
    """Fit `logits` on the standardised `scan`, both at the pulls, with the slope shrunk to the prior correlation."""
    n = logits.size
    trust_in_prior = prior.prior_pulls / (prior.prior_pulls + n)
    variance = max(float(scan.var()), 0.05)
    spread = max(float(logits.std()), 1e-6)
    covariance = float(((scan - scan.mean()) * (logits - logits.mean())).mean())
    # Pulls were made where the scan is high, which changes the variance: correct the prior slope for that.
    selected = np.sqrt(max(variance * prior.rho_prior**2 + 1.0 - prior.rho_prior**2, 0.05))
    slope = (1 - trust_in_prior) * covariance / variance + trust_in_prior * prior.rho_prior * spread / selected
    residuals = logits - logits.mean() - slope * (scan - scan.mean())
    return Regression(float(slope), residuals, max(float(residuals.var()) * n / max(1, n - 2), 1e-4))


def density_of(
    times: FloatArray, scan: FloatArray, pull_times: FloatArray, fit: Regression, prior: Prior
) -> FloatArray:
    """Return the density of evidence at `times` from the standardised `scan` there and the pulls' regression on it."""
    heights, weight_of_pulls = fused_heights(times, scan, pull_times, fit, prior)
    unexplained = bridge_variance(times, pull_times, seconds=prior.fade_seconds)
    uncertainty = np.minimum(1.0, unexplained + prior.nugget) * fit.residual_variance / fit.sigma**2
    height = np.minimum(heights, prior.cap)
    return contrast(np.exp(prior.h * height + 0.5 * (prior.h * weight_of_pulls) ** 2 * uncertainty), times)


def fused_heights(
    times: FloatArray, scan: FloatArray, pull_times: FloatArray, fit: Regression, prior: Prior
) -> tuple[FloatArray, float]:
    """Return the height at each moment, expected from both channels together, and the weight of the pulls in it.

    The arguments are those of `density_of`.
    """
    rho, q = fit.rho, fit.q
    mean = bridge_mean(times, pull_times, fit.residuals, base=0.0, seconds=prior.fade_seconds)
    expected = (fit.slope * scan + (1.0 - prior.nugget) * mean) / fit.sigma
    weight_of_pulls, weight_of_scan = (1.0 - rho * q) / (1.0 - rho**2), (q - rho) / (1.0 - rho**2)
    return weight_of_pulls * expected + weight_of_scan * scan, weight_of_pulls


def likelihood_ratio(times: FloatArray, pull_times: FloatArray, logits: FloatArray) -> FloatArray:
    """Return the density of evidence at `times` from the logits of pulls alone: `density_of` without a scan."""
    surprise = logits - logits.mean()
    scan_alone = Regression(0.0, surprise, max(float(surprise.var()), 1e-4))
    return density_of(times, np.zeros(times.shape), pull_times, scan_alone, Prior())


def scan_density(times: FloatArray, scan: FloatArray, prior: Prior) -> FloatArray:
    """Return the density of evidence at `times` from the standardised `scan` alone."""
    return contrast(np.exp(0.7 * prior.h * np.minimum(scan, prior.cap)), times)


def contrast(density: FloatArray, times: FloatArray) -> FloatArray:
    """Return `density` squared over its mean within 8 seconds, so that local peaks weigh more."""
    rate = (times.size - 1) / (times[-1] - times[0]) if times.size > 1 else 1.0
    around = moving_mean(density, int(CONTRAST_SECONDS * rate + 1e-9))
    # If one outlier of the scan dwarfs everything else, numerator and denominator round to 0: the result is 0 then.
    return np.divide(density**2, around, out=np.zeros_like(density), where=around > 0)


def moving_mean(values: FloatArray, half: int) -> FloatArray:
    """Return the mean of each value and up to `half` neighbours on each side, fewer at the ends."""
    # Convolve instead of using running sums, in which rounding errors of large values would drown small ones.
    window, n = np.ones(2 * half + 1), values.size
    total, count = (np.convolve(row, window)[half : half + n] for row in (values, np.ones(n)))
    mean: FloatArray = total / count
    return mean
