//! The newsfeed as users build their services, with the system's allocator.

fn main() -> std::process::ExitCode {
    stroboscope_newsfeed::run(std::env::args_os().skip(1))
}
