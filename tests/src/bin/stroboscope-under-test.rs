//! The command line of the `stroboscope` binary, where the tests of this package can find it.

fn main() -> std::process::ExitCode {
    stroboscope_collector::cli::main()
}
