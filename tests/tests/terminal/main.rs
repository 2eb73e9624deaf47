//! The program in terminals and pipes, and its behaviour when these disappear.

mod gone;
mod pty;
mod top;
