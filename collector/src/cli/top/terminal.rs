//! Takes over the terminal to show pictures, and restores it afterwards.

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

/// True from the first change to the terminal until its restoration begins.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Holder of the terminal's raw mode and alternate screen. Dropping it, or a panic of any thread,
/// restores the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    has_colour: bool,
}

impl Screen {
    pub(super) fn take(has_colour: bool) -> io::Result<Self> {
        HOOK.call_once(|| {
            let say = std::panic::take_hook();
            // The panic message would vanish with the alternate screen.
            std::panic::set_hook(Box::new(move |panic| {
                put_back();
                say(panic);
            }));
        });
        let screen = Self { has_colour };
        enter()?;
        Ok(screen)
    }

    /// Restores the terminal and suspends the process group. Takes the terminal again when the
    /// group is resumed.
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

    /// Shows these lines in one update.
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

    /// Sets the style of a line. Bold and reversed text are used even without colours.
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

/// Time in which `watch` may still end the process in order, after a signal or a hangup.
const ENDING: Duration = Duration::from_millis(500);

/// Ends the process after [`ENDING`], unless `watch` has ended it before. This is necessary
/// because crossterm reads the end of file of a closed terminal forever, and does not return.
pub(super) fn end_soon() -> ! {
    std::thread::sleep(ENDING);
    put_back();
    std::process::exit(0)
}

/// Waits until the terminal that keys are read from is closed.
pub(super) fn wait_for_hangup() -> io::Result<()> {
    let stdin = io::stdin();
    let keys = if stdin.is_terminal() {
        stdin.as_fd().try_clone_to_owned()?
    } else {
        OwnedFd::from(File::open("/dev/tty")?)
    };
    // `poll` reports a hangup whatever events are requested.
    let mut keys = [PollFd::new(&keys, PollFlags::empty())];
    loop {
        match poll(&mut keys, None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Restores the terminal if it was taken. Ignores errors.
fn put_back() {
    if TAKEN.swap(false, SeqCst) {
        let _ = execute!(io::stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
