//! The doors as their readers meet them: over real sockets, of real stores.

mod jaeger;
mod memory;
mod round_trip;
mod same_answers;
mod samples;
mod served;
mod tempo;
mod tempo_clients;
mod warnings;
