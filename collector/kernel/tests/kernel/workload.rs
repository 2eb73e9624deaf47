//! A program of several threads that work for requests. It logs the system calls that it makes by
//! `call`, each with its request, and the waits for a lock and the releases of the lock. It runs as
//! a process of its own: this test binary, started again.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const MARK: u64 = 0x5354_524f_4245_0000;
const ENV: &str = "KERNEL_TEST_WORKLOAD";

/// One line of the program's own log. Times are monotonic ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) tid: u32,
    pub(crate) what: What,
    /// The request; 0: none.
    pub(crate) trace: u64,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Call(u32),
    /// Waited for the lock. True if the thread slept and was woken.
    Wait(bool),
    /// Released the lock, and woke a waiter if there could be one, at some time between the two
    /// times. One entry covers both, because the kernel sees only the wake-up. A thread that is
    /// preempted between both steps wakes a waiter that began to wait after the release.
    Release,
    Request,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) threads: u64,
    /// Minimum duration of a request.
    pub(crate) request_us: u64,
    pub(crate) run_ms: u64,
    /// True if a pair of calls (Ardelean et al.) marks each edge of a request, instead of one call.
    pub(crate) pairs: bool,
}

/// The running program; it waits for [`go`](Self::go).
pub(crate) struct Workload {
    child: Child,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

impl Workload {
    pub(crate) fn start(plan: Plan) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("truth");
        std::fs::write(directory.path().join("data"), vec![7_u8; 1 << 20]).unwrap();
        let Plan {
            threads,
            request_us,
            run_ms,
            pairs,
        } = plan;
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "workload::is_the_program",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(
                ENV,
                format!(
                    "{threads} {request_us} {run_ms} {} {}",
                    u8::from(pairs),
                    directory.path().display()
                ),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            log,
            _directory: directory,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn go(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Returns the program's own log.
    pub(crate) fn truth(&mut self) -> Vec<Line> {
        assert!(self.child.wait().unwrap().success());
        let lines = BufReader::new(File::open(&self.log).unwrap()).lines();
        lines.map(|line| Line::parse(&line.unwrap())).collect()
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Line {
    pub(crate) fn parse(line: &str) -> Self {
        let n: Vec<u64> = line
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect();
        let what = match n[1] {
            1 => What::Call(n[2] as u32),
            2 => What::Wait(n[2] != 0),
            3 => What::Release,
            _ => What::Request,
        };
        Self {
            tid: n[0] as u32,
            what,
            trace: n[3],
            from_ns: n[4],
            to_ns: n[5],
        }
    }

    pub(crate) fn text(&self) -> String {
        let (kind, number) = match self.what {
            What::Call(call) => (1, call),
            What::Wait(slept) => (2, u32::from(slept)),
            What::Release => (3, 0),
            What::Request => (4, 0),
        };
        format!(
            "{} {kind} {number} {} {} {}",
            self.tid, self.trace, self.from_ns, self.to_ns
        )
    }
}

// The rest of this file runs in the program.

pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is valid during the call. Usually, the C library needs no system call for
    // this.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
}

struct Log {
    tid: u32,
    trace: u64,
    lines: Vec<Line>,
}

thread_local! {
    static LOG: RefCell<Log> = const { RefCell::new(Log { tid: 0, trace: 0, lines: Vec::new() }) };
}

fn log(what: What, from_ns: u64, to_ns: u64) {
    LOG.with_borrow_mut(|log| {
        // Growth could make system calls that are not logged.
        assert!(log.lines.len() < log.lines.capacity(), "the log is full");
        log.lines.push(Line {
            tid: log.tid,
            what,
            trace: log.trace,
            from_ns,
            to_ns,
        });
    });
}

/// Makes a system call without the C library, whose wrapper could make others.
#[cfg(target_arch = "x86_64")]
unsafe fn raw(number: i64, a: [u64; 6]) -> i64 {
    let result;
    // SAFETY: the caller ensures that the arguments are valid. All registers that the call changes
    // are declared.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number => result, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn raw(number: i64, a: [u64; 6]) -> i64 {
    // SAFETY: the caller ensures that the arguments are valid.
    unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) }
}

fn call(number: i64, a: [u64; 6]) -> i64 {
    let from_ns = now_ns();
    // SAFETY: the callers below pass numbers, and pointers to memory that is valid during the call.
    let result = unsafe { raw(number, a) };
    log(What::Call(number as u32), from_ns, now_ns());
    result
}

fn mark(kind: u64, trace: u64, lock: u64) {
    let tid = LOG.with_borrow(|log| u64::from(log.tid));
    call(
        libc::SYS_getpid,
        [MARK | kind, trace, trace ^ 0xff, tid, lock, 0],
    );
}

fn sleep(us: u64) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: us as i64 * 1_000,
    };
    call(
        libc::SYS_nanosleep,
        [(&raw const time).addr() as u64, 0, 0, 0, 0, 0],
    );
}

fn spin(us: u64) {
    let until_ns = now_ns() + us * 1_000;
    while now_ns() < until_ns {
        std::hint::spin_loop();
    }
}

/// 0: free; 1: held; 2: held, with possible waiters.
static LOCK: AtomicU32 = AtomicU32::new(0);

fn lock() {
    if LOCK.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
        return;
    }
    let address = LOCK.as_ptr().addr() as u64;
    let from_ns = now_ns();
    let mut slept = false;
    mark(5, LOG.with_borrow(|log| log.trace), address);
    while LOCK.swap(2, Acquire) != 0 {
        // FUTEX_WAIT_PRIVATE
        slept |= call(libc::SYS_futex, [address, 128, 2, 0, 0, 0]) == 0;
    }
    let to_ns = now_ns();
    mark(6, LOG.with_borrow(|log| log.trace), address);
    log(What::Wait(slept), from_ns, to_ns);
}

fn unlock() {
    let from_ns = now_ns();
    if LOCK.swap(0, Release) == 2 {
        // FUTEX_WAKE_PRIVATE
        call(
            libc::SYS_futex,
            [LOCK.as_ptr().addr() as u64, 129, 1, 0, 0, 0],
        );
    }
    log(What::Release, from_ns, now_ns());
}

struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn work(dice: &mut Dice, path: &std::ffi::CStr, buffer: &mut [u8]) {
    match dice.throw(4) {
        0 => spin(10 + dice.throw(60)),
        1 => {
            let file = call(
                libc::SYS_openat,
                [
                    libc::AT_FDCWD as u64,
                    path.as_ptr().addr() as u64,
                    0,
                    0,
                    0,
                    0,
                ],
            );
            let to = buffer.as_mut_ptr().addr() as u64;
            call(
                libc::SYS_pread64,
                [
                    file as u64,
                    to,
                    4_096 + dice.throw(60_000),
                    dice.throw(900_000),
                    0,
                    0,
                ],
            );
            call(libc::SYS_close, [file as u64, 0, 0, 0, 0, 0]);
        }
        2 => sleep(50 + dice.throw(300)),
        _ => {
            lock();
            spin(10 + dice.throw(80));
            if dice.throw(2) == 0 {
                sleep(50 + dice.throw(100));
            }
            unlock();
        }
    }
}

fn request(trace: u64, plan: Plan, dice: &mut Dice, path: &std::ffi::CStr, buffer: &mut [u8]) {
    let edge = |kind: u64| {
        if plan.pairs {
            mark(0x8000 | kind, 0, 0);
            call(libc::SYS_getpid, [trace, 0, 0, 0, 0, 0]);
        } else {
            mark(kind, trace, 0);
        }
    };
    LOG.with_borrow_mut(|log| log.trace = trace);
    let from_ns = now_ns();
    edge(1);
    while now_ns() < from_ns + plan.request_us * 1_000 {
        work(dice, path, buffer);
    }
    edge(2);
    log(What::Request, from_ns, now_ns());
    LOG.with_borrow_mut(|log| log.trace = 0);
    // This call is between requests and belongs to none.
    call(libc::SYS_getppid, [0; 6]);
    if dice.throw(4) == 0 {
        sleep(30);
    }
}

fn run_thread(number: u64, plan: Plan, directory: &Path) -> Vec<Line> {
    let path = std::ffi::CString::new(directory.join("data").into_os_string().into_encoded_bytes())
        .unwrap();
    let mut buffer = vec![0; 1 << 16];
    LOG.with_borrow_mut(|log| {
        // SAFETY: gettid has no arguments.
        log.tid = unsafe { libc::gettid() }.cast_unsigned();
        log.lines = Vec::with_capacity(1 << 20);
    });
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number + 11));
    let until_ns = now_ns() + plan.run_ms * 1_000_000;
    let mut count = 0;
    while now_ns() < until_ns {
        count += 1;
        request(
            (number + 1) << 32 | count,
            plan,
            &mut dice,
            &path,
            &mut buffer,
        );
    }
    LOG.with_borrow_mut(|log| std::mem::take(&mut log.lines))
}

/// Not a test: the program, when this binary is started by [`Workload::start`].
#[test]
#[ignore = "the program that the other tests watch"]
fn is_the_program() {
    let Ok(text) = std::env::var(ENV) else { return };
    let parts: Vec<&str> = text.splitn(5, ' ').collect();
    let number = |place: usize| parts[place].parse::<u64>().unwrap();
    let plan = Plan {
        threads: number(0),
        request_us: number(1),
        run_ms: number(2),
        pairs: number(3) != 0,
    };
    let directory = PathBuf::from(parts[4]);
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let threads: Vec<_> = (0..plan.threads)
        .map(|number| {
            let directory = directory.clone();
            std::thread::spawn(move || run_thread(number, plan, &directory))
        })
        .collect();
    let mut file = BufWriter::new(File::create(directory.join("truth")).unwrap());
    for thread in threads {
        for line in thread.join().unwrap() {
            writeln!(file, "{}", line.text()).unwrap();
        }
    }
    file.flush().unwrap();
}
