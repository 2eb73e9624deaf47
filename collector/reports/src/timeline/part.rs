//! Describes the recording of a kernel in a sentence.

use stroboscope_burst::BurstConfig;

use super::items::took;
use stroboscope_query::KernelPart;
use stroboscope_render::humanise::{are, counted};

/// Describes the recording, and warns if its burst-config differs from that of services.
pub(super) fn part_text(part: &KernelPart) -> String {
    let windows = &part.timeline.windows;
    let lengths_ns = windows.iter().map(|of| of.close_ns - of.open_ns);
    let seen_ns: u64 = lengths_ns.sum();
    let gaps = part.timeline.gaps.iter();
    let missing: u64 = gaps.map(|gap| gap.counts.total()).sum();
    format!(
        "kernel of {}: {} in {}, {} together; {} {} missing in them{}",
        part.host,
        counted(part.events.len() as u64, "event"),
        counted(windows.len() as u64, "window"),
        took(seen_ns),
        counted(missing, "event"),
        are(missing),
        other_configs(part)
    )
}

/// Returns a warning if services recorded by another burst-config than the kernel's recorder, else
/// an empty text.
fn other_configs(part: &KernelPart) -> String {
    if part.services_configs.is_empty() {
        return String::new();
    }
    let name = |bits: &u64| BurstConfig::from_bits(*bits).to_string();
    let names = |all: &[u64]| all.iter().map(name).collect::<Vec<_>>().join(", ");
    format!(
        "\nthe kernel of {} was recorded in bursts of {}, and services there in bursts of {} meanwhile, so its windows are \
         not theirs; `kernel record --collector` follows the burst-config that the collector sets",
        part.host,
        names(&part.burst_configs),
        names(&part.services_configs)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_burst_config_of_services_is_said() {
        let mut part = KernelPart {
            host: "shop-1".to_owned(),
            burst_configs: vec![28],
            ..KernelPart::default()
        };
        assert!(!part_text(&part).contains("meanwhile"));
        part.services_configs = vec![12];
        let said = part_text(&part);
        let warning = "the kernel of shop-1 was recorded in bursts of 0b11100 (4ms/32ms), and services there in bursts of \
                       0b1100 (4ms/16ms) meanwhile";
        assert!(said.contains(warning), "{said}");
    }
}
