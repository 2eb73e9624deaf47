//! Connected agents, and the delay of each.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which an agent is probed, unless the previous probe has no answer yet.
pub(super) const PROBE_EVERY: Duration = Duration::from_secs(5);

/// Connected agents. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Agents(Arc<Mutex<HashMap<u64, AgentDelay>>>);

#[derive(Clone, Copy, Debug, Default)]
struct AgentDelay {
    /// Id of the probe without an answer, and the time when it was sent.
    probe: Option<(u64, Instant)>,
    /// Time from the latest answered probe to its answer, plus the delay of the slowest agent
    /// behind this one; `None` before the first answer.
    delay: Option<Duration>,
}

impl AgentDelay {
    /// Returns the delay. While a probe has no answer, the delay is at least the time since the
    /// probe. An agent that never answered has no known delay; it may be of an earlier version.
    fn known(&self) -> Option<Duration> {
        let waiting = self.probe.map(|(_, sent)| sent.elapsed());
        Some(self.delay?.max(waiting.unwrap_or_default()))
    }
}

impl Agents {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, AgentDelay>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an agent, which stays until the returned link is dropped.
    pub(super) fn join(&self) -> AgentLink {
        let mut agents = self.lock();
        let mut id = random();
        while agents.contains_key(&id) {
            id = random();
        }
        agents.insert(id, AgentDelay::default());
        AgentLink {
            id,
            agents: self.clone(),
        }
    }

    /// Returns the number of connected agents, including kernel recorders that follow this
    /// collector.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Returns the delay of the slowest agent; `None` if none is known.
    pub(crate) fn slowest(&self) -> Option<Duration> {
        self.lock().values().filter_map(AgentDelay::known).max()
    }

    /// Records the answer to a probe. `below` is the delay of the slowest agent behind the one that
    /// answers. Ignores the answer to an unknown probe.
    pub(super) fn answered(&self, probe: u64, below: Duration) {
        let mut agents = self.lock();
        let asked = agents.values_mut().find_map(|agent| {
            let sent = agent.probe.filter(|(id, _)| *id == probe)?.1;
            Some((agent, sent))
        });
        if let Some((agent, sent)) = asked {
            agent.probe = None;
            agent.delay = Some(sent.elapsed().saturating_add(below));
        }
    }
}

/// Membership of one connected agent. Dropping it removes the agent.
#[derive(Debug)]
pub(super) struct AgentLink {
    id: u64,
    agents: Agents,
}

impl AgentLink {
    /// Begins a probe, and returns its id. Returns `None` while the previous one has no answer.
    pub(super) fn probe(&self) -> Option<u64> {
        let mut agents = self.agents.lock();
        let agent = agents.get_mut(&self.id)?;
        if agent.probe.is_some() {
            return None;
        }
        let id = random();
        agent.probe = Some((id, Instant::now()));
        Some(id)
    }
}

impl Drop for AgentLink {
    fn drop(&mut self) {
        self.agents.lock().remove(&self.id);
    }
}

fn random() -> u64 {
    // The keys of a `RandomState` are random.
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_agent_is_known_by_its_answers() {
        let agents = Agents::default();
        let (first, second) = (agents.join(), agents.join());
        assert_eq!((agents.count(), agents.slowest()), (2, None));
        let probe = first.probe().unwrap();
        assert_eq!(first.probe(), None, "one at a time");
        agents.answered(probe ^ 1, Duration::from_secs(9));
        assert_eq!(agents.slowest(), None, "no answer to this probe");
        agents.answered(probe, Duration::from_secs(3));
        let slowest = agents.slowest().unwrap();
        assert!((3..4).contains(&slowest.as_secs()), "{slowest:?}");
        // The second agent never answers, like one of an earlier version.
        assert!(second.probe().is_some());
        assert!(agents.slowest().unwrap() < Duration::from_secs(4));
        drop(first);
        assert_eq!((agents.count(), agents.slowest()), (1, None));
    }

    #[test]
    fn an_agent_that_stops_to_answer_gets_slower() {
        let agents = Agents::default();
        let link = agents.join();
        agents.answered(link.probe().unwrap(), Duration::ZERO);
        let before = agents.slowest().unwrap();
        assert!(link.probe().is_some());
        std::thread::sleep(before + Duration::from_millis(5));
        assert!(agents.slowest().unwrap() > before);
    }
}
