//! Stories with the provenance of their bytes.

use stroboscope::baggage::Provenance;
use stroboscope::tracked::{self, DataLinkage, Tracked, TrackedBuf};

use crate::wire::{RankReply, Story};

/// Length in bytes of a story's id and of its score in a record.
const NUMBER_BYTES: usize = 8;

/// Story, and its record: the id and the bits of the score in big-endian order, and the source.
#[derive(Clone, Debug)]
pub(crate) struct TrackedStory {
    pub(crate) story: Story,
    pub(crate) record: TrackedBuf,
}

impl TrackedStory {
    /// Returns the bytes of the id.
    pub(crate) fn id(&self) -> TrackedBuf {
        self.part(0, NUMBER_BYTES)
    }

    /// Returns the score.
    pub(crate) fn score(&self) -> Tracked<f64> {
        let score = self.part(NUMBER_BYTES, NUMBER_BYTES);
        score.calculate::<_, DataLinkage>(|_| self.story.score)
    }

    /// Returns the name of the generator that proposed the story.
    pub(crate) fn source(&self) -> TrackedBuf {
        self.part(2 * NUMBER_BYTES, self.story.source.len())
    }

    fn part(&self, from: usize, count: usize) -> TrackedBuf {
        self.record.slice(from..from + count).unwrap_or_default()
    }
}

/// Makes the ranker's response.
pub(crate) fn reply(stories: Vec<TrackedStory>) -> RankReply {
    let records = TrackedBuf::concat(stories.iter().map(|story| &story.record));
    RankReply {
        stories: stories.into_iter().map(|story| story.story).collect(),
        provenance: tracked::send(&records, "ranked stories").to_text(),
    }
}

/// Reads the ranker's response.
pub(crate) fn received(reply: RankReply) -> Vec<TrackedStory> {
    let mut bytes = Vec::new();
    let mut ends = Vec::with_capacity(reply.stories.len());
    for story in &reply.stories {
        bytes.extend_from_slice(&story.id.to_be_bytes());
        bytes.extend_from_slice(&story.score.to_bits().to_be_bytes());
        bytes.extend_from_slice(story.source.as_bytes());
        ends.push(bytes.len());
    }
    let provenance = Provenance::from_text(&reply.provenance);
    let records = tracked::receive(&provenance, "ranked stories", bytes);
    let mut start = 0;
    let stories = reply.stories.into_iter().zip(ends);
    stories
        .map(|(story, end)| {
            let record = records.slice(start..end).unwrap_or_default();
            start = end;
            TrackedStory { story, record }
        })
        .collect()
}
