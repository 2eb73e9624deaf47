//! The terminal while pictures are on it, and how it is left.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Color, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap,
    EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use crossterm::{execute, queue};
use rustix::event::{PollFd, PollFlags, poll};

use super::picture::{Look, ScreenLine, Size};

/// Whether there is something to put back.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal, raw and on its other screen, until this is dropped or the process panics.
#[derive(Debug)]
pub(super) struct Screen {
    has_colour: bool,
}

impl Screen {
    pub(super) fn take(has_colour: bool) -> io::Result<Self> {
        HOOK.call_once(|| {
            let say = std::panic::take_hook();
            // What is said of a panic would go with the other screen.
            std::panic::set_hook(Box::new(move |panic| {
                put_back();
                say(panic);
            }));
        });
        let screen = Self { has_colour };
        enter()?;
        Ok(screen)
    }

    /// Stops the process as a shell's job, and goes on when that does.
    #[cfg(unix)]
    pub(super) fn suspend(&self) -> io::Result<()> {
        put_back();
        let stopped = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
        stopped?;
        enter()
    }

    pub(super) fn size() -> io::Result<Size> {
        let (columns, rows) = crossterm::terminal::size()?;
        Ok(Size {
            columns: columns.into(),
            rows: rows.into(),
        })
    }

    /// Shows these lines, at once.
    pub(super) fn draw(&self, lines: &[ScreenLine]) -> io::Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        queue!(out, BeginSynchronizedUpdate, MoveTo(0, 0))?;
        for (at, line) in lines.iter().enumerate() {
            queue!(out, MoveTo(0, u16::try_from(at).unwrap_or(u16::MAX)))?;
            self.begin(line.look, &mut out)?;
            queue!(
                out,
                Print(&line.text),
                SetAttribute(Attribute::Reset),
                Clear(ClearType::UntilNewLine)
            )?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        out.flush()
    }

    /// Bold and reversed are no colours.
    fn begin(&self, look: Look, out: &mut impl io::Write) -> io::Result<()> {
        match look {
            Look::Plain => Ok(()),
            Look::Bold => queue!(out, SetAttribute(Attribute::Bold)),
            Look::Marked => queue!(out, SetAttribute(Attribute::Reverse)),
            Look::Faint if self.has_colour => queue!(out, SetForegroundColor(Color::DarkGrey)),
            Look::Bad if self.has_colour => queue!(out, SetForegroundColor(Color::Red)),
            Look::Faint | Look::Bad => Ok(()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        put_back();
    }
}

fn enter() -> io::Result<()> {
    TAKEN.store(true, SeqCst);
    enable_raw_mode()?;
    execute!(
        io::stdout(),
        EnterAlternateScreen,
        Hide,
        DisableLineWrap,
        Clear(ClearType::All)
    )
}

/// How long the pictures may take to end by themselves.
const ENDING: Duration = Duration::from_millis(500);

/// Ends the process, unless it ends by itself soon. crossterm reads the end of a terminal for ever, and returns from that to
/// nobody.
pub(super) fn end_soon() -> ! {
    std::thread::sleep(ENDING);
    put_back();
    std::process::exit(0)
}

/// Waits until the terminal that keys are read from is gone.
pub(super) fn wait_for_hangup() -> io::Result<()> {
    let stdin = io::stdin();
    let keys = if stdin.is_terminal() {
        stdin.as_fd().try_clone_to_owned()?
    } else {
        OwnedFd::from(File::open("/dev/tty")?)
    };
    // A hangup is reported whatever is asked for.
    let mut keys = [PollFd::new(&keys, PollFlags::empty())];
    loop {
        match poll(&mut keys, None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// As the terminal was. What fails now cannot be told to anybody.
fn put_back() {
    if TAKEN.swap(false, SeqCst) {
        let _ = execute!(io::stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
