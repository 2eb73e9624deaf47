//! Connections of many agents that forward nothing at the moment. Each follows directives, answers
//! probes, and has an open stream.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use stroboscope_proto::v1::collector_client::CollectorClient;
use stroboscope_proto::v1::directive::Kind;
use stroboscope_proto::v1::gateway_client::GatewayClient;
use stroboscope_proto::v1::{ControlRequest, Directive, Probe, ProbeAnswer};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use crate::Failure;
use crate::process::CollectorProcess;

/// Time over which the CPU time of an idle collector is measured.
const WATCHED: Duration = Duration::from_secs(20);

/// Agents that stay connected until this is dropped.
pub(crate) struct Agents {
    _runtime: tokio::runtime::Runtime,
}

impl Agents {
    /// Connects `count` agents, and prints their cost to an idle collector.
    pub(crate) fn connect(collector: &CollectorProcess, count: usize) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Runtime::new()?;
        let before_mib = collector.resident_mib()?;
        let address = format!("http://{}", collector.target.grpc);
        let connected = (0..count).map(|number| {
            // An agent is alone on its host, and a collector bounds the connections of each address.
            let [high, low] = [number / 250, number % 250 + 1].map(|part| part as u8);
            let from = Ipv4Addr::new(127, 0, high.saturating_add(1), low);
            runtime.spawn(agent(address.clone(), from.into()))
        });
        for connected in connected.collect::<Vec<_>>() {
            runtime.block_on(connected)??;
        }
        let cpu_s = collector.cpu_s()?;
        std::thread::sleep(WATCHED);
        let share = (collector.cpu_s()? - cpu_s) / WATCHED.as_secs_f64();
        println!(
            "{count} agents connected: {} known to the collector, {:.1} MiB more, {:.2} % of a processor while idle",
            collector.metric("agents")?,
            collector.resident_mib()? - before_mib,
            share * 100.0
        );
        Ok(Self { _runtime: runtime })
    }
}

async fn agent(address: String, from: IpAddr) -> Result<(), Failure> {
    let channel = Channel::from_shared(address)?.local_address(Some(from));
    let channel = channel.connect().await?;
    let request = ControlRequest {
        process: None,
        is_agent: true,
    };
    let mut client = CollectorClient::new(channel.clone());
    let mut directives = client.control(request).await?.into_inner();
    let mut gateway = GatewayClient::new(channel);
    let (requests, receiver) = mpsc::channel(1);
    // The response comes with the first reply.
    let mut forwarding = gateway.clone();
    tokio::spawn(async move { forwarding.forward(ReceiverStream::new(receiver)).await });
    tokio::spawn(async move {
        let _requests = requests;
        while let Ok(Some(Directive { kind })) = directives.message().await {
            if let Some(Kind::Probe(Probe { id })) = kind {
                let answer = ProbeAnswer {
                    probe: id,
                    below_ns: 0,
                };
                let _ = gateway.answer(answer).await;
            }
        }
    });
    Ok(())
}
