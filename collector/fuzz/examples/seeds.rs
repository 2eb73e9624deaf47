//! Writes the seeds of all targets as files: `seeds FOLDER`, for `.ci/fuzz`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_default();
    for (name, _) in stroboscope_fuzz::TARGETS {
        let folder = Path::new(&folder).join(name);
        std::fs::create_dir_all(&folder)?;
        for (at, seed) in stroboscope_fuzz::seeds(name).iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{at}")), seed)?;
        }
    }
    Ok(())
}
