//! Rows of the table `kernel`.

use crate::record::StringId;

/// Kind of a row in the table `kernel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RowKind {
    #[default]
    Enter,
    Exit,
    Switch,
    Waking,
    NewTask,
    Named,
    TaskExit,
    Thread,
    Lost,
    Window,
    Clock,
    Recording,
}

impl RowKind {
    pub(super) const ALL: [Self; 12] = [
        Self::Enter,
        Self::Exit,
        Self::Switch,
        Self::Waking,
        Self::NewTask,
        Self::Named,
        Self::TaskExit,
        Self::Thread,
        Self::Lost,
        Self::Window,
        Self::Clock,
        Self::Recording,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Enter => "enter",
            Self::Exit => "exit",
            Self::Switch => "switch",
            Self::Waking => "waking",
            Self::NewTask => "new_task",
            Self::Named => "named",
            Self::TaskExit => "task_exit",
            Self::Thread => "thread",
            Self::Lost => "lost",
            Self::Window => "window",
            Self::Clock => "clock",
            Self::Recording => "recording",
        }
    }

    /// Returns the id of the kind's name. The names of kinds come first among the texts of a
    /// chunk's rows.
    pub(super) fn text(self) -> StringId {
        self as StringId
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Row to write to the table `kernel`; `None` becomes null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelRow {
    pub(super) recording: u128,
    pub(super) host: StringId,
    pub(super) time_ns: i64,
    pub(super) monotonic_ns: u64,
    pub(super) cpu: u16,
    pub(super) tid: u32,
    pub(super) kind: RowKind,
    pub(super) process: Option<u32>,
    pub(super) name: Option<StringId>,
    pub(super) call: Option<u32>,
    pub(super) call_name: Option<StringId>,
    pub(super) args: [Option<u64>; 6],
    pub(super) result: Option<i64>,
    pub(super) state: Option<u32>,
    pub(super) other: Option<u32>,
    pub(super) other_process: Option<u32>,
    pub(super) other_name: Option<StringId>,
    pub(super) owner: Option<(u64, u64)>,
}
