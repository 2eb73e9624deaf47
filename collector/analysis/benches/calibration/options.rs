//! Options of the bench.

use super::fault::{FaultKind, LEVELS};
use super::pair::QuietKind;
use super::system::Bounds;

/// Options of the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) systems: u64,
    pub(crate) first_seed: u64,
    pub(crate) threads: usize,
    pub(crate) bounds: Bounds,
    pub(crate) quiet: bool,
    pub(crate) power: bool,
    /// Maximum number of planted changes per system.
    pub(crate) faults: u64,
    /// Shows only the system with this seed, in detail.
    pub(crate) seed: Option<u64>,
    pub(crate) kind: Option<String>,
    pub(crate) level: Option<usize>,
}

pub(crate) const USAGE: &str = "\
Options, after `--`:
  --systems N     Number of random systems [200]
  --first-seed N  Seed of the first system [0]
  --only WHAT     quiet or power
  --faults N      Planted changes per system [3]
  --large         Up to 5,000 requests a period instead of 2,000
  --threads N     Systems simulated at once [1]
  --seed N        One system in detail; give --large if it was found with it
  --kind K        With --seed: only this kind of pair
  --level L       With --seed: only this size of the change, 0 to 5";

impl Options {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            systems: 200,
            first_seed: 0,
            threads: 1,
            bounds: Bounds {
                services_max: 60,
                requests_max: 2_000,
            },
            quiet: true,
            power: true,
            faults: 3,
            seed: None,
            kind: None,
            level: None,
        };
        let mut arguments = arguments.filter(|argument| argument != "--bench");
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            let number = |text: String| text.parse().map_err(|_| format!("{text}: no number"));
            match argument.as_str() {
                "--systems" => options.systems = number(value()?)?,
                "--first-seed" => options.first_seed = number(value()?)?,
                "--faults" => options.faults = number(value()?)?,
                "--threads" => options.threads = number(value()?)?.max(1) as usize,
                "--seed" => options.seed = Some(number(value()?)?),
                "--level" => {
                    let level = number(value()?)? as usize;
                    options.level = Some(level.min(LEVELS - 1));
                }
                "--large" => options.bounds.requests_max = 5_000,
                "--kind" => options.kind = Some(kind(value()?)?),
                "--only" => {
                    let only = value()?;
                    options.quiet = only == "quiet";
                    options.power = only == "power";
                    if !options.quiet && !options.power {
                        return Err(format!("--only {only}: neither quiet nor power"));
                    }
                }
                _ => return Err(format!("{argument} is no option")),
            }
        }
        Ok(options)
    }

    /// Returns whether the options select this kind of pair.
    pub(crate) fn wants(&self, kind: &str) -> bool {
        self.kind.as_deref().is_none_or(|only| only == kind)
    }
}

fn kind(name: String) -> Result<String, String> {
    let quiet = QuietKind::ALL.map(QuietKind::name);
    let faults = FaultKind::ALL.map(FaultKind::name);
    let mut known = quiet.iter().chain(&faults);
    if known.any(|known| *known == name) {
        Ok(name)
    } else {
        Err(format!("--kind {name}: one of {quiet:?} or {faults:?}"))
    }
}
