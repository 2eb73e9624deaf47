"""Sampler for OpenTelemetry's SDK that samples requests in coordinated bursts.

All processes with the same burst-config sample the requests that enter them during the same
short bursts of wall-clock time, without communicating. A process that is called follows the
sampled flag of its caller, so a sampled request is recorded whole. Requests that begin between
bursts are not recorded. The schedule is that of Ardelean et al., NSDI 2018, section 3.3.1.
"""

import logging
import math
import os
import re
import time

from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import TraceState, get_current_span

__all__ = ["BurstConfig", "BurstSampler", "ENVIRONMENT_VARIABLE", "from_environment"]

ENVIRONMENT_VARIABLE = "STROBOSCOPE_BURST_CONFIG"
"""Environment variable with the burst-config, as for services with Stroboscope's own SDK."""

_MASK_MAX = (1 << 64) - 1
_UNITS_MS = {"ms": 1.0, "s": 1e3, "m": 6e4, "min": 6e4, "h": 3.6e6}
_LOG = logging.getLogger(__name__)


class BurstConfig:
    """64-bit mask over wall time: a burst is open at ``t`` ms since the Unix epoch if
    ``mask & t == mask``."""

    def __init__(self, mask):
        if not 0 <= mask <= _MASK_MAX:
            raise ValueError(f"{mask} is not a mask of 64 bits")
        self.mask = mask

    @classmethod
    def parse(cls, text):
        """Parses ``4ms/32ms``, ``0b11100``, ``0x1c``, ``28``, ``always`` or ``off``.

        Raises ValueError if the text has none of these forms, or if decimal digits could be meant
        as a mask in binary.
        """
        text = text.strip()
        if not text:
            raise ValueError("the burst-config is empty")
        if text == "always":
            return cls(0)
        if text == "off":
            return cls(_MASK_MAX)
        if "/" in text:
            burst, period = text.split("/", 1)
            return cls._nearest(_milliseconds(burst), _milliseconds(period))
        match = re.fullmatch(r"(0[bB])([01_]+)|(0[xX])([0-9a-fA-F_]+)|([0-9][0-9_]*)", text)
        if not match:
            raise ValueError(f"{text!r} is no burst-config: write 4ms/32ms, 0b11100, always or off")
        binary, hexadecimal, decimal = match.group(2), match.group(4), match.group(5)
        digits = (binary or hexadecimal or decimal).replace("_", "")
        if not digits:
            raise ValueError(f"{text!r} has no digits")
        base = 2 if binary else 16 if hexadecimal else 10
        if base == 10 and set(digits) <= {"0", "1"} and int(digits, 2) != int(digits):
            raise ValueError(f"{text!r} can be read as a mask: write 0b{digits}")
        return cls(int(digits, base))

    @classmethod
    def _nearest(cls, burst_ms, period_ms):
        if burst_ms <= 0 or period_ms <= 0:
            raise ValueError("burst and period must be longer than nothing")
        if burst_ms >= period_ms:
            raise ValueError("the burst must be shorter than the period (use always to record always)")
        low = min(max(_rounded(math.log2(burst_ms)), 0), 62)
        high = max(min(max(_rounded(math.log2(period_ms)), 0), 63), low + 1)
        return cls(((1 << (high - low)) - 1) << low)

    def contains_ms(self, time_ms):
        """Reports whether a burst is open at this time, in ms since the Unix epoch."""
        return self.mask & time_ms == self.mask

    def __repr__(self):
        return f"BurstConfig({self.mask:#x})"


def _rounded(value):
    """Rounds halves away from zero."""
    return math.floor(value + 0.5) if value >= 0 else -math.floor(0.5 - value)


def _milliseconds(text):
    match = re.fullmatch(r"\s*([0-9.]+)\s*(ms|s|m|min|h)\s*", text, re.ASCII)
    if not match:
        raise ValueError(f"{text!r} is no duration: write a number and a unit (ms, s, min, h)")
    return float(match.group(1)) * _UNITS_MS[match.group(2)]


def from_environment():
    """Returns the config of the environment variable, or 4ms/32ms. Logs an invalid one."""
    text = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if text:
        try:
            return BurstConfig.parse(text)
        except ValueError as error:
            _LOG.error("%s: %s; using 4ms/32ms", ENVIRONMENT_VARIABLE, error)
    return BurstConfig(0b11100)


class BurstSampler(Sampler):
    """Samples a request that enters this process without a caller if a burst is open; otherwise
    follows the caller's sampled flag."""

    def __init__(self, config=None, clock_ns=time.time_ns):
        """Takes a BurstConfig, its text, or nothing for the environment variable."""
        if isinstance(config, str):
            config = BurstConfig.parse(config)
        self._config = config or from_environment()
        self._trace_state = TraceState([("stroboscope", f"burst:{self._config.mask:x}")])
        self._clock_ns = clock_ns

    def should_sample(
        self, parent_context, trace_id, name, kind=None, attributes=None, links=None, trace_state=None
    ):
        parent = get_current_span(parent_context).get_span_context()
        if parent.is_valid:
            is_sampled = parent.trace_flags.sampled
            trace_state = parent.trace_state
        else:
            is_sampled = self._config.contains_ms(self._clock_ns() // 1_000_000)
            trace_state = self._trace_state if is_sampled else None
        decision = Decision.RECORD_AND_SAMPLE if is_sampled else Decision.DROP
        return SamplingResult(decision, attributes if is_sampled else None, trace_state)

    def get_description(self):
        return f"StroboscopeBurstSampler{{{self._config.mask:#x}}}"


def _factory(argument):
    """Returns the sampler for ``OTEL_TRACES_SAMPLER=stroboscope_burst``; the argument is
    ``OTEL_TRACES_SAMPLER_ARG``."""
    return BurstSampler(argument.strip() if argument and argument.strip() else None)
