//! What people and scripts run in terminals and pipes, and what becomes of it when these are gone.

mod gone;
mod pty;
mod top;
