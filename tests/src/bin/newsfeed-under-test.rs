//! A service as its users build it, with the system's allocator.

fn main() -> std::process::ExitCode {
    stroboscope_newsfeed::run(std::env::args_os().skip(1))
}
