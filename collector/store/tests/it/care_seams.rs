//! Maintenance that a kill or a power cut interrupts at any of its operations on the disk. A reader
//! sees no partial change, and the next process completes the maintenance.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stroboscope_fixtures::disk::SimDisk;
use stroboscope_fixtures::mixed_requests::{requests, write};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::maintenance::MaintenanceSettings;
use stroboscope_store::tables::{Store, StoreTable};

use crate::maintenance::{NOW_NS, at_rest, care, files, flush, seen};
use crate::thinning::{LATER_NS, provenance, thinning, traces};

const ROOT: &str = "/sim/data";
const SEGMENTS: u64 = 4;
const HOUR_NS: i64 = 3_600_000_000_000;
/// Returns the number of seeds per operation, for kills and for power cuts each;
/// `STROBOSCOPE_SEAM_SEEDS` overrides it. Twenty run at night.
fn seeds() -> u64 {
    let said = std::env::var("STROBOSCOPE_SEAM_SEEDS");
    said.ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

struct Seams {
    runtime: tokio::runtime::Runtime,
    /// Disk with a filled store, all of it durable.
    prepared: SimDisk,
}

impl Seams {
    /// Creates a disk with a store that `fill` fills.
    fn new(fill: impl FnOnce(&Store)) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let seams = Self {
            runtime: runtime.unwrap(),
            prepared: SimDisk::new(0),
        };
        // This also makes the directories above the store durable.
        DataDir::create_on(Arc::new(seams.prepared.clone()), Path::new(ROOT)).unwrap();
        fill(&seams.store(&seams.prepared));
        seams.prepared.restart_machine();
        seams
    }

    fn store(&self, disk: &SimDisk) -> Store {
        disk.store(Path::new(ROOT), self.runtime.handle().clone())
    }

    /// Interrupts a round of maintenance at each operation, repeatedly by a kill and by a power
    /// cut, and passes the result to `check`. Returns the number of operations.
    fn at_each(
        &self,
        settings: &MaintenanceSettings,
        now_ns: i64,
        check: &dyn Fn(&SimDisk, &str),
    ) -> u64 {
        let whole = self.prepared.copy(1);
        let begun = whole.operations();
        let store = self.store(&whole);
        care(&store, settings.clone())
            .0
            .round(SEGMENTS, now_ns, &|| true)
            .unwrap();
        let operations = whole.operations() - begun;
        for at in 1..=operations {
            for seed in 0..2 * seeds() {
                let disk = self.prepared.copy(seed);
                disk.end_after(Some(at));
                let (mut interrupted, _) = care(&self.store(&disk), settings.clone());
                let _ = interrupted.round(SEGMENTS, now_ns, &|| true);
                let is_power_cut = seed % 2 == 1;
                if is_power_cut {
                    disk.restart_machine();
                } else {
                    disk.restart_process();
                }
                let when = format!(
                    "operation {at} of {operations}, seed {seed}, power cut: {is_power_cut}"
                );
                check(&disk, &when);
            }
        }
        operations
    }
}

#[test]
fn a_merge_that_ends_anywhere_loses_and_doubles_nothing() {
    let seams = Seams::new(|store| flush(store, 0..SEGMENTS));
    let before = seen(&seams.store(&seams.prepared));
    assert!(!before.0.is_empty() && !before.1.is_empty());
    let operations = seams.at_each(&at_rest(), NOW_NS, &|disk, when| {
        let store = seams.store(disk);
        assert_eq!(seen(&store), before, "before anybody took over: {when}");
        let (mut next, _) = care(&store, at_rest());
        next.round(SEGMENTS, NOW_NS, &|| true).unwrap();
        assert_eq!(seen(&store), before, "{when}");
        for table in StoreTable::OF_SEGMENTS {
            let found = files(&store, table);
            assert_eq!(found, ["seg-0000000000-0000000003.parquet"], "{when}");
        }
        let left = disk.files(Path::new(ROOT)).into_keys();
        let parts: Vec<String> = left.filter(|name| name.ends_with(".part")).collect();
        assert_eq!(parts, [""; 0], "{when}");
        // The result is durable.
        disk.restart_machine();
        assert_eq!(seen(&store), before, "{when}");
    });
    println!("{operations} operations, {} ends each", 2 * seeds());
    assert!(operations > 40, "{operations}");
}

#[test]
fn an_hour_is_deleted_as_a_whole_wherever_that_ends() {
    let seams = Seams::new(|store| flush(store, 0..SEGMENTS));
    let before = seen(&seams.store(&seams.prepared));
    assert!(!before.0.is_empty() && !before.1.is_empty());
    let too_old = MaintenanceSettings {
        compacts: false,
        keep: Some(Duration::from_secs(3_600)),
        ..MaintenanceSettings::default()
    };
    let now_ns = NOW_NS + 100 * HOUR_NS;
    let operations = seams.at_each(&too_old, now_ns, &|disk, when| {
        let store = seams.store(disk);
        let now = seen(&store);
        let is_all = now == before;
        assert!(is_all || now == (Vec::new(), Vec::new()), "in part: {when}");
        let (mut next, _) = care(&store, too_old.clone());
        next.round(SEGMENTS, now_ns, &|| true).unwrap();
        assert_eq!(seen(&store), (Vec::new(), Vec::new()), "{when}");
        // If a power cut brings the hour back, the next round deletes it again.
        disk.restart_machine();
        let (mut last, _) = care(&store, too_old.clone());
        last.round(SEGMENTS, now_ns, &|| true).unwrap();
        assert_eq!(seen(&store), (Vec::new(), Vec::new()), "{when}");
    });
    println!("{operations} operations, {} ends each", 2 * seeds());
    assert!(operations > 20, "{operations}");
}

#[test]
fn an_hour_is_thinned_in_all_tables_or_in_none_wherever_that_ends() {
    let settings = MaintenanceSettings {
        compacts: false,
        ..thinning(0.1)
    };
    let seams = Seams::new(|store| {
        write(
            store,
            requests(6, 90)
                .into_iter()
                .filter(|it| it.is_in_two_files()),
        );
    });
    let seen = |store: &Store| (traces(store), provenance(store));
    let before = seen(&seams.store(&seams.prepared));
    let thinned = seams.prepared.copy(1);
    let (mut whole, _) = care(&seams.store(&thinned), settings.clone());
    whole.round(SEGMENTS, LATER_NS, &|| true).unwrap();
    let after = seen(&seams.store(&thinned));
    assert!(after.0.len() < before.0.len() / 2, "{}", after.0.len());
    let operations = seams.at_each(&settings, LATER_NS, &|disk, when| {
        let store = seams.store(disk);
        let now = seen(&store);
        assert!(now == before || now == after, "in part: {when}");
        let (mut next, _) = care(&store, settings.clone());
        next.round(SEGMENTS, LATER_NS, &|| true).unwrap();
        assert!(seen(&store) == after, "{when}");
        let left: Vec<String> = disk.files(Path::new(ROOT)).into_keys().collect();
        let is_left =
            |name: &&String| name.ends_with(".part") || name.ends_with("generations/thinning");
        assert_eq!(left.iter().find(is_left), None, "{when}");
        let tables = StoreTable::OF_REQUESTS.map(|table| files(&store, table));
        let mut names = tables.iter().flatten();
        assert!(
            names.all(|name| name.ends_with("-thinned.parquet")),
            "{when}"
        );
        // The result is durable.
        disk.restart_machine();
        assert!(seen(&store) == after, "{when}");
    });
    println!("{operations} operations, {} ends each", 2 * seeds());
    assert!(operations > 60, "{operations}");
}
