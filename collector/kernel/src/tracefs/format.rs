//! Locations of the fields in tracefs's binary records, as each kernel declares them in
//! `events/…/format`.

use std::collections::HashMap;

use stroboscope_analysis::kernel::event::{Body, Name};

/// Recorded events. `Formats` refers to an event by its place in this list. An exec is not among
/// them: the rename that accompanies it carries the name, and the exec itself adds nothing.
pub(super) const EVENTS: [&str; 7] = [
    "raw_syscalls/sys_enter",
    "raw_syscalls/sys_exit",
    "sched/sched_switch",
    "sched/sched_waking",
    "task/task_newtask",
    "sched/sched_process_exit",
    "task/task_rename",
];

/// Fields of one event: the offset and size of each, in bytes, by name.
#[derive(Debug, Default)]
struct Format {
    event: usize,
    fields: HashMap<String, (usize, usize)>,
}

/// Formats of all recorded events, by the kernel's number of the event.
#[derive(Debug, Default)]
pub(super) struct Formats {
    by_id: HashMap<u16, Format>,
}

impl Formats {
    /// Adds the format of the event at this place in [`EVENTS`], from the text of its `format`
    /// file.
    pub(super) fn add(&mut self, event: usize, text: &str) {
        let mut format = Format {
            event,
            ..Format::default()
        };
        let mut id = None;
        for line in text.lines().map(str::trim) {
            if let Some(number) = line.strip_prefix("ID: ") {
                id = number.parse().ok();
            }
            let Some((declaration, rest)) = line
                .strip_prefix("field:")
                .and_then(|rest| rest.split_once(';'))
            else {
                continue;
            };
            let number = |key: &str| -> Option<usize> {
                rest.split(';')
                    .find_map(|part| part.trim().strip_prefix(key)?.parse().ok())
            };
            let name = declaration
                .rsplit(' ')
                .next()
                .and_then(|name| name.split('[').next());
            if let (Some(name), Some(offset), Some(size)) =
                (name, number("offset:"), number("size:"))
            {
                format.fields.insert(name.to_owned(), (offset, size));
            }
        }
        if let Some(id) = id {
            self.by_id.insert(id, format);
        }
    }

    /// Decodes one record to its thread and its event. Returns `None` for an unknown record or one
    /// that lacks a field of the event.
    pub(super) fn decode(&self, record: &[u8]) -> Option<(u32, Body)> {
        let id = u16::from_ne_bytes(record.get(..2)?.try_into().ok()?);
        let format = self.by_id.get(&id)?;
        let tid = number(record, (4, 4))? as u32;
        let field = |name: &str| number(record, *format.fields.get(name)?);
        let name = |field: &str| text(record, *format.fields.get(field)?);
        Some(match format.event {
            0 => {
                let (offset, _) = *format.fields.get("args")?;
                let mut args = [0; 6];
                for (place, arg) in args.iter_mut().enumerate() {
                    *arg = number(record, (offset + 8 * place, 8))?;
                }
                (
                    tid,
                    Body::Enter {
                        call: field("id")? as u32,
                        args,
                    },
                )
            }
            1 => (
                tid,
                Body::Exit {
                    call: field("id")? as u32,
                    result: field("ret")?.cast_signed(),
                },
            ),
            2 => {
                // The bits above the state itself mean that the thread was preempted, not that it
                // sleeps.
                let state = (field("prev_state")? & 0xff) as u8;
                let (name, next_name) = (name("prev_comm")?, name("next_comm")?);
                let next = field("next_pid")? as u32;
                let body = Body::Switch {
                    state,
                    process: 0,
                    name,
                    next,
                    next_process: 0,
                    next_name,
                };
                (field("prev_pid")? as u32, body)
            }
            3 => (
                tid,
                Body::Waking {
                    woken: field("pid")? as u32,
                    woken_process: 0,
                },
            ),
            4 => {
                const CLONE_THREAD: u64 = 0x10000;
                let child = field("pid")? as u32;
                let child_process = if field("clone_flags")? & CLONE_THREAD == 0 {
                    child
                } else {
                    0
                };
                (
                    tid,
                    Body::NewTask {
                        child,
                        child_process,
                        name: name("comm")?,
                    },
                )
            }
            5 => (tid, Body::TaskExit { process: 0 }),
            _ => (
                tid,
                Body::Named {
                    process: 0,
                    name: name("newcomm")?,
                },
            ),
        })
    }
}

fn number(record: &[u8], (offset, size): (usize, usize)) -> Option<u64> {
    let bytes = record.get(offset..offset.checked_add(size)?)?;
    Some(match size {
        2 => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
        4 => i64::from(i32::from_ne_bytes(bytes.try_into().ok()?)).cast_unsigned(),
        8 => u64::from_ne_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

fn text(record: &[u8], (offset, size): (usize, usize)) -> Option<Name> {
    let bytes = record.get(offset..offset.checked_add(size)?)?;
    let mut name = [0; 16];
    for (to, from) in name[..15]
        .iter_mut()
        .zip(bytes.iter().take_while(|&&byte| byte != 0))
    {
        *to = *from;
    }
    Some(Name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_describes() {
        let mut formats = Formats::default();
        formats.add(
            1,
            "name: sys_exit\nID: 410\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
             \tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n\nprint fmt: \"NR %ld = %ld\"",
        );
        let mut record = [0_u8; 24];
        record[..2].copy_from_slice(&410_u16.to_ne_bytes());
        record[4..8].copy_from_slice(&77_i32.to_ne_bytes());
        record[8..16].copy_from_slice(&3_i64.to_ne_bytes());
        record[16..24].copy_from_slice(&(-9_i64).to_ne_bytes());
        assert_eq!(
            formats.decode(&record),
            Some((
                77,
                Body::Exit {
                    call: 3,
                    result: -9
                }
            ))
        );
        assert_eq!(formats.decode(&record[..20]), None, "cut short");
        assert_eq!(formats.decode(&[1, 0]), None, "another event");
        assert_eq!(formats.decode(&[]), None);
    }

    #[test]
    fn every_recorded_event_is_known() {
        let fields = [
            ("id", 8),
            ("ret", 8),
            ("args", 48),
            ("prev_state", 8),
            ("prev_comm", 16),
            ("prev_pid", 4),
            ("next_comm", 16),
            ("next_pid", 4),
            ("pid", 4),
            ("clone_flags", 8),
            ("comm", 16),
            ("newcomm", 16),
        ];
        let fields: String = fields
            .iter()
            .map(|(name, size)| {
                format!("\tfield:long {name};\toffset:8;\tsize:{size};\tsigned:0;\n")
            })
            .collect();
        for (place, event) in EVENTS.iter().enumerate() {
            let mut formats = Formats::default();
            formats.add(place, &format!("name: {event}\nID: 7\nformat:\n{fields}"));
            let mut record = [0_u8; 56];
            record[..2].copy_from_slice(&7_u16.to_ne_bytes());
            assert!(formats.decode(&record).is_some(), "{event}");
        }
    }
}
