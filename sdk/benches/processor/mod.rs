//! Describes the processor on which a benchmark runs, because the cost of reading the counter
//! depends on it.

/// Returns the processor's name, family and model, as in `/proc/cpuinfo`.
pub(crate) fn describe() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| {
            line.split(':')
                .next()
                .is_some_and(|name| name.trim() == key)
        })?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let name = value("model name").or_else(|| value("CPU implementer"));
    let Some(name) = name else {
        return format!("{} (no model in /proc/cpuinfo)", std::env::consts::ARCH);
    };
    let number = |key| value(key).unwrap_or_else(|| "unknown".into());
    format!(
        "{name} (family {}, model {})",
        number("cpu family"),
        number("model")
    )
}
