//! Checks that this crate, which defines burst-configs, agrees with the test vectors in
//! `sdk/otel/vectors.json`. Implementations in other languages are tested against the same vectors.

use serde_json::Value;
use stroboscope_burst::BurstConfig;

fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../otel/vectors.json");
    let text = std::fs::read_to_string(path).expect("the vectors");
    serde_json::from_str(&text).expect("JSON")
}

fn bits(mask: &Value) -> Option<u64> {
    let digits = mask.as_str()?.strip_prefix("0x").expect("hexadecimal");
    Some(u64::from_str_radix(digits, 16).expect("64 bits"))
}

#[test]
fn texts_have_the_masks_of_the_vectors() {
    let vectors = vectors();
    let cases = vectors["parse"].as_array().expect("a list");
    assert!(cases.len() > 40);
    for case in cases {
        let text = case["text"].as_str().expect("a text");
        let parsed = text.parse::<BurstConfig>().ok().map(BurstConfig::bits);
        assert_eq!(parsed, bits(&case["mask"]), "{text:?}");
    }
}

#[test]
fn instants_are_in_bursts_as_the_vectors_say() {
    let vectors = vectors();
    let cases = vectors["contains"].as_array().expect("a list");
    assert!(cases.len() > 80);
    for case in cases {
        let config = BurstConfig::from_bits(bits(&case["mask"]).expect("a mask"));
        let ms: u64 = case["ms"]
            .as_str()
            .expect("a text")
            .parse()
            .expect("64 bits");
        assert_eq!(config.contains_ms(ms), case["open"] == true, "{case}");
    }
}
