//! Finds the running processes that the settings choose.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use stroboscope_kernel_model::Processes;

use crate::start_error::StartError;

/// Returns the running processes that `processes` chooses; empty for [`Processes::All`].
pub(crate) fn running(processes: &Processes) -> Result<BTreeSet<u32>, StartError> {
    let mut found = BTreeSet::new();
    match processes {
        Processes::All => {}
        Processes::Trees(roots) => {
            let parents = parents();
            for &root in roots {
                if !Path::new(&format!("/proc/{root}")).exists() {
                    return Err(StartError::NoProcess(root));
                }
                found.insert(root);
            }
            add_children(&parents, &mut found);
        }
        Processes::Named(names) => {
            let parents = parents();
            found.extend(parents.keys().copied().filter(|process| {
                let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
                names
                    .iter()
                    .any(|wanted| wanted.bytes().take(15).eq(name.trim_end().bytes()))
            }));
            add_children(&parents, &mut found);
        }
        Processes::Cgroup(directory) => add_cgroup(directory, &mut found, 0)?,
    }
    Ok(found)
}

/// Returns every process with its parent. Omits processes that end meanwhile.
fn parents() -> BTreeMap<u32, u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    let parent = |process: u32| -> Option<u32> {
        // The name, in parentheses, may itself contain spaces and parentheses.
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|process| Some((process, parent(process)?)))
        .collect()
}

fn add_children(parents: &BTreeMap<u32, u32>, found: &mut BTreeSet<u32>) {
    loop {
        let before = found.len();
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| found.contains(parent))
                .map(|(&process, _)| process)
                .collect::<Vec<_>>(),
        );
        if found.len() == before {
            return;
        }
    }
}

/// Maximum depth of nested control groups that are searched.
const DEPTH_MAX: usize = 32;

fn add_cgroup(directory: &Path, found: &mut BTreeSet<u32>, depth: usize) -> Result<(), StartError> {
    let list = directory.join("cgroup.procs");
    let text = fs::read_to_string(&list).map_err(|source| {
        StartError::system(
            format!("reading the control group's {}", list.display()),
            source,
        )
    })?;
    found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    if depth < DEPTH_MAX
        && let Ok(entries) = fs::read_dir(directory)
    {
        for entry in entries
            .flatten()
            .filter(|entry| entry.path().join("cgroup.procs").exists())
        {
            add_cgroup(&entry.path(), found, depth + 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_holds_its_children() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let own = std::process::id();
        let tree = running(&Processes::Trees(vec![own])).unwrap();
        let named = running(&Processes::Named(vec!["sleep".into()])).unwrap();
        let id = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tree.contains(&own) && tree.contains(&id), "{tree:?}");
        assert!(named.contains(&id) && !named.contains(&own), "{named:?}");
        assert!(matches!(
            running(&Processes::Trees(vec![u32::MAX])),
            Err(StartError::NoProcess(_))
        ));
        assert!(running(&Processes::All).unwrap().is_empty());
    }
}
