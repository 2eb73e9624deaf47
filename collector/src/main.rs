//! The `stroboscope` command.

fn main() -> std::process::ExitCode {
    stroboscope_collector::cli::main()
}
