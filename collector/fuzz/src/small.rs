//! Targets that need no module of their own.

use stroboscope_burst::BurstConfig;
use stroboscope_store::decode::CheckedBatch;
use stroboscope_store::limits::Limits;
use stroboscope_store::record::Rows;

/// Reads a batch of our own protocol, and checks that it becomes as many rows as it reports.
pub(crate) fn batch(bytes: &[u8]) {
    let Ok(batch) = CheckedBatch::from_bytes(bytes, &Limits::default()) else {
        return;
    };
    let mut rows = Rows::default();
    batch.append_to(7, &mut rows);
    assert_eq!(batch.records(), rows.spans.len() + rows.events.len());
    assert_eq!(rows.batches.len(), 1);
    for row in &rows.spans {
        assert!(row.start_ns <= row.end_ns, "{row:?}");
        is_json(row.attributes.as_deref());
    }
    rows.events
        .iter()
        .for_each(|row| is_json(row.attributes.as_deref()));
}

/// Parses a burst config, and checks that its printed form parses to an equal config.
pub(crate) fn burst_config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match BurstConfig::parse(text) {
        Ok(parsed) => {
            let said = format!("{:#x}", parsed.config.bits());
            let again = BurstConfig::parse(&said).expect("what is said is read");
            assert_eq!(again.config, parsed.config, "{text:?} {said}");
            let _ = (parsed.config.to_string(), parsed.config.duty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Checks that attributes are an object of JSON, or absent.
pub(crate) fn is_json(attributes: Option<&str>) {
    if let Some(text) = attributes {
        assert!(text.starts_with('{') && text.ends_with('}'), "{text}");
        assert!(text.len() > 2, "nothing is not written");
    }
}
