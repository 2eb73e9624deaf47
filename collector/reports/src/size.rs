//! Parses sizes on the command line.

/// Minimum size in bytes that is accepted without a unit.
const UNITLESS_MIN: u64 = 1_000;

/// Parses a number with a decimal or binary unit to bytes. A number without a unit is in bytes.
/// Rejects 0, and small numbers without a unit, because a user who writes `20` probably forgot the
/// unit.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || "must be a number of bytes, such as 500MB, 20GiB or 1TB".to_owned();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    let scale = match unit {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    if unit.is_empty() && (1..UNITLESS_MIN).contains(&number) {
        return Err(format!(
            "{number} needs a unit, such as {number}GiB or {number}B"
        ));
    }
    number
        .checked_mul(scale)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        assert_eq!(parse_size("500MB"), Ok(500_000_000));
        assert_eq!(parse_size("20GiB"), Ok(20 << 30));
        assert_eq!(parse_size("17000"), Ok(17_000));
        assert_eq!(parse_size("17B"), Ok(17));
        assert_eq!(parse_size("2 GiB"), Ok(2 << 30));
        for wrong in ["", "0", "17", "GB", "-1GB", "1.5GB", "5gb", "99999999999TB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_size("17 "), parse_size("17"));
    }
}
