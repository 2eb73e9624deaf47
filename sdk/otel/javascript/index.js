'use strict'
/**
 * Sampler for OpenTelemetry's SDK that samples requests in coordinated bursts.
 *
 * All processes with the same burst-config sample the requests that enter them during the same
 * short bursts of wall-clock time, without communicating. A process that is called follows the
 * sampled flag of its caller, so a sampled request is recorded whole. Requests that begin between
 * bursts are not recorded. The schedule is that of Ardelean et al., NSDI 2018, section 3.3.1.
 */
const { createTraceState, trace, isSpanContextValid, TraceFlags, diag } = require('@opentelemetry/api')

/** Environment variable with the burst-config, as for services with Stroboscope's own SDK. */
const ENVIRONMENT_VARIABLE = 'STROBOSCOPE_BURST_CONFIG'
const MASK_MAX = (1n << 64n) - 1n
const UNITS_MS = { ms: 1, s: 1e3, m: 6e4, min: 6e4, h: 3.6e6 }
// Values of `SamplingDecision` in @opentelemetry/sdk-trace-base, which is not a dependency.
const NOT_RECORD = 0
const RECORD_AND_SAMPLED = 2

/** 64-bit mask over wall time: a burst is open at `t` ms since the Unix epoch if `mask & t == mask`. */
class BurstConfig {
  /** @param {bigint} mask */
  constructor (mask) {
    if (mask < 0n || mask > MASK_MAX) throw new RangeError(`${mask} is not a mask of 64 bits`)
    this.mask = mask
  }

  /**
   * Parses `4ms/32ms`, `0b11100`, `0x1c`, `28`, `always` or `off`. Throws if the text has none of
   * these forms, or if decimal digits could be meant as a mask in binary.
   * @param {string} given
   */
  static parse (given) {
    const text = given.trim()
    if (text === 'always') return new BurstConfig(0n)
    if (text === 'off') return new BurstConfig(MASK_MAX)
    const slash = text.indexOf('/')
    if (slash >= 0) {
      return nearest(milliseconds(text.slice(0, slash)), milliseconds(text.slice(slash + 1)))
    }
    const match = /^(?:0[bB]([01_]+)|0[xX]([0-9a-fA-F_]+)|([0-9][0-9_]*))$/.exec(text)
    const digits = match && (match[1] || match[2] || match[3]).replaceAll('_', '')
    if (!digits) {
      throw new SyntaxError(`${JSON.stringify(given)} is no burst-config: write 4ms/32ms, 0b11100, always or off`)
    }
    if (match[3] && /^[01]+$/.test(digits) && BigInt('0b' + digits) !== BigInt(digits)) {
      throw new SyntaxError(`${JSON.stringify(given)} can be read as a mask: write 0b${digits}`)
    }
    const prefix = match[1] ? '0b' : match[2] ? '0x' : ''
    return new BurstConfig(BigInt(prefix + digits))
  }

  /**
   * Reports whether a burst is open at this time, in ms since the Unix epoch.
   * @param {number | bigint} ms
   */
  containsMs (ms) {
    return (this.mask & BigInt(ms)) === this.mask
  }
}

function nearest (burstMs, periodMs) {
  if (!(burstMs > 0) || !(periodMs > 0)) throw new RangeError('burst and period must be longer than nothing')
  if (burstMs >= periodMs) throw new RangeError('the burst must be shorter than the period (use always to record always)')
  // Math.round rounds halves up; the logarithms that matter are positive.
  const low = Math.min(Math.max(Math.round(Math.log2(burstMs)), 0), 62)
  const high = Math.max(Math.min(Math.max(Math.round(Math.log2(periodMs)), 0), 63), low + 1)
  return new BurstConfig(((1n << BigInt(high - low)) - 1n) << BigInt(low))
}

function milliseconds (text) {
  const match = /^\s*([0-9.]+)\s*(ms|s|min|m|h)\s*$/.exec(text)
  const value = match ? Number(match[1]) : NaN
  if (Number.isNaN(value)) {
    throw new SyntaxError(`${JSON.stringify(text)} is no duration: write a number and a unit (ms, s, min, h)`)
  }
  return value * UNITS_MS[match[2]]
}

/** Returns the config of the environment variable, or 4ms/32ms. Logs an invalid one. */
function fromEnvironment () {
  const text = (process.env[ENVIRONMENT_VARIABLE] || '').trim()
  if (text) {
    try {
      return BurstConfig.parse(text)
    } catch (error) {
      diag.error(`${ENVIRONMENT_VARIABLE}: ${error.message}; using 4ms/32ms`)
    }
  }
  return new BurstConfig(0b11100n)
}

/**
 * Samples a request that enters this process without a caller if a burst is open; otherwise
 * follows the caller's sampled flag. Implements `Sampler` of @opentelemetry/sdk-trace-base.
 */
class BurstSampler {
  /**
   * @param {BurstConfig | string} [config] its text, or nothing for the environment variable
   * @param {() => number} [clockMs] wall time in ms since the Unix epoch
   */
  constructor (config, clockMs = Date.now) {
    this.config = typeof config === 'string' ? BurstConfig.parse(config) : config || fromEnvironment()
    this.clockMs = clockMs
    this.traceState = createTraceState(`stroboscope=burst:${this.config.mask.toString(16)}`)
  }

  shouldSample (context) {
    const parent = trace.getSpanContext(context)
    const hasParent = parent !== undefined && isSpanContextValid(parent)
    const isSampled = hasParent
      ? (parent.traceFlags & TraceFlags.SAMPLED) !== 0
      : this.config.containsMs(Math.floor(this.clockMs()))
    const ownState = isSampled ? this.traceState : undefined
    const traceState = hasParent ? parent.traceState : ownState
    return { decision: isSampled ? RECORD_AND_SAMPLED : NOT_RECORD, traceState }
  }

  toString () {
    return `StroboscopeBurstSampler{0x${this.config.mask.toString(16)}}`
  }
}

module.exports = { BurstConfig, BurstSampler, ENVIRONMENT_VARIABLE, fromEnvironment }
