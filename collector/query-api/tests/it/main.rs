//! Tests of the APIs over sockets, with stores on disk.

mod jaeger;
mod memory;
mod round_trip;
mod same_answers;
mod samples;
mod served;
mod tempo;
mod tempo_clients;
mod warnings;
