//! Targets that need no room of their own.

use stroboscope_burst::BurstConfig;
use stroboscope_store::decode::CheckedBatch;
use stroboscope_store::limits::Limits;
use stroboscope_store::record::Rows;

/// A batch of our own protocol: what is checked becomes as many rows as it says.
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

/// A burst-config: what is read is said in a form that is read as the same.
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

/// Attributes are an object of JSON, or nothing.
pub(crate) fn is_json(attributes: Option<&str>) {
    if let Some(text) = attributes {
        assert!(text.starts_with('{') && text.ends_with('}'), "{text}");
        assert!(text.len() > 2, "nothing is not written");
    }
}
