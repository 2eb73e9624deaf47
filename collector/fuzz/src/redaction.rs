//! Targets that check that redacted attributes and masked texts are in no row, for every protocol,
//! that redacted items are in no provenance log, and that nothing else is lost.

use std::sync::{Arc, LazyLock};

use prost::Message as _;
use serde_json::Value;
use stroboscope_proto::v1::Batch;
use stroboscope_provenance::{LogFile, ReadLog as _};
use stroboscope_server::redact::Redaction;
use stroboscope_store::decode::{
    CheckedBatch, NotOtlp, OtlpTaken, otlp_json, otlp_logs_json, otlp_logs_protobuf, otlp_protobuf,
};
use stroboscope_store::limits::Limits;
use stroboscope_store::record::Rows;

static REDACTION: LazyLock<Arc<Redaction>> = LazyLock::new(|| {
    let rules = ["drop:*secret*", "hash:*token*", "mask:maskme"];
    let rules = rules.map(|rule| rule.parse().expect("a rule")).into();
    Redaction::new(rules, b"a key").expect("there are rules")
});

/// Redacts an OTLP request: the first byte is its kind.
pub(crate) fn otlp(bytes: &[u8]) {
    type Read = fn(&[u8], &Limits, &mut Rows) -> Result<OtlpTaken, NotOtlp>;
    let Some((first, request)) = bytes.split_first() else {
        return;
    };
    let (redacted, read): (_, Read) = match first % 4 {
        0 => (REDACTION.traces(request), otlp_protobuf),
        1 => (REDACTION.logs(request), otlp_logs_protobuf),
        2 => (REDACTION.json(request), otlp_json),
        _ => (REDACTION.json(request), otlp_logs_json),
    };
    let limits = Limits::default();
    let mut rows = Rows::default();
    let sent = read(request, &limits, &mut rows);
    let Ok(redacted) = redacted else {
        return;
    };
    let mut rows = Rows::default();
    let taken = read(&redacted, &limits, &mut rows);
    if let Ok(sent) = &sent {
        let taken = taken.as_ref().expect("what was taken is, redacted");
        assert!(taken.records >= sent.records, "{taken:?} {sent:?}");
    }
    check(&rows);
}

/// Redacts a batch of our own protocol.
pub(crate) fn batch(bytes: &[u8]) {
    let Ok(mut batch) = Batch::decode(bytes) else {
        return;
    };
    let limits = Limits::default();
    let logs = || batch.provenance.iter().map(|log| &log.log);
    let is_sound = CheckedBatch::from_bytes(bytes, &limits).is_ok();
    // The check does not parse logs. Redaction drops those that are none, or get too long by hashes.
    let readable = logs().filter(|log| LogFile::parse(log).is_ok()).count();
    let is_short = logs().all(|log| 3 * log.len() < limits.provenance_bytes_max);
    let redacted = REDACTION.batch(&mut batch, &limits);
    if is_sound {
        redacted.clone().expect("what is sound is walked over");
    }
    if redacted.is_err() {
        return;
    }
    let kept = batch.provenance.len();
    assert!(kept == readable || !is_short && kept < readable, "{kept}");
    let redacted = CheckedBatch::from_bytes(&batch.encode_to_vec(), &limits);
    if is_sound {
        redacted.as_ref().expect("what is sound is, redacted");
    }
    let Ok(redacted) = redacted else {
        return;
    };
    let mut rows = Rows::default();
    redacted.append_to(7, &mut rows);
    check(&rows);
    for log in &batch.provenance {
        let file = LogFile::parse(&log.log).expect("a log, redacted");
        for item in file.items() {
            let name = item.name.to_ascii_lowercase();
            assert!(
                !name.contains("secret") && !name.contains("token"),
                "{name}"
            );
            assert!(item.content.is_empty(), "no rule keeps contents");
        }
    }
}

/// Text that is masked.
const MASKED: &str = "maskme";

fn check(rows: &Rows) {
    let names = rows
        .spans
        .iter()
        .map(|row| [row.name, row.service, row.host]);
    let names = names.chain(
        rows.events
            .iter()
            .map(|row| [row.name, row.service, row.host]),
    );
    for name in names.flatten() {
        let name = rows.strings.text(name);
        assert!(!name.contains(MASKED), "{name}");
    }
    let spans = rows.spans.iter().map(|row| row.attributes.as_deref());
    let events = rows.events.iter().map(|row| row.attributes.as_deref());
    for attributes in spans.chain(events).flatten() {
        assert!(!attributes.contains(MASKED), "{attributes}");
        let value = serde_json::from_str(attributes).expect("JSON");
        assert!(is_redacted(&value), "{attributes}");
    }
}

fn is_redacted(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().all(|(key, value)| {
            let key = key.to_ascii_lowercase();
            let is_hash = || value.as_str().is_some_and(|text| text.starts_with("hmac:"));
            // Nothing inside of a redacted value is left.
            !key.contains("secret") && (!key.contains("token") || is_hash()) && is_redacted(value)
        }),
        Value::Array(elements) => elements.iter().all(is_redacted),
        _ => true,
    }
}
