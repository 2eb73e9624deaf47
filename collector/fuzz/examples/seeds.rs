//! Writes the seeds of all targets as files: `seeds DIRECTORY`, for `.ci/fuzz`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_default();
    for (name, _) in stroboscope_fuzz::TARGETS {
        let directory = Path::new(&directory).join(name);
        std::fs::create_dir_all(&directory)?;
        for (at, seed) in stroboscope_fuzz::seeds(name).iter().enumerate() {
            std::fs::write(directory.join(format!("seed-{at}")), seed)?;
        }
    }
    Ok(())
}
