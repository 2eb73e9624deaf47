//! Which processor the figures are of: what a reading of the counter waits for differs by make.

/// Its name, family and model, as the kernel has them.
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
