//! The pagelets of a page and their generation.

use std::time::Duration;

use stroboscope::tracked::{self, DataLinkage, TrackedBuf};

use crate::cpu::Cpu;
use crate::random::{Random, mix};
use crate::story::TrackedStory;
use crate::wire::Pagelet;

/// Cost of generating one pagelet.
const RENDER_TIME: Duration = Duration::from_micros(300);

/// Names of the pagelets in the order in which they are sent, each with its size in bytes without
/// stories.
pub(crate) const PAGELETS: [(&str, usize); 4] = [
    ("header", 2_048),
    ("stories", 4_096),
    ("sidebar", 2_048),
    ("ads", 2_048),
];

/// Size of a story, in bytes.
const STORY_BYTES: usize = 320;

/// Generates pagelet `index` of [`PAGELETS`]: a frame, and its stories, each a line and letters
/// in place of a picture. Pictures and frames depend on the user's properties.
pub(crate) fn render(
    cpu: &Cpu,
    index: usize,
    properties: &[TrackedBuf],
    stories: &[TrackedStory],
) -> Pagelet {
    let (name, frame_bytes) = PAGELETS[index];
    let content = match name {
        "header" => Vec::new(),
        "stories" => stories.iter().collect(),
        "ads" => stories
            .iter()
            .filter(|story| story.story.source == "ads")
            .collect(),
        _ => stories.iter().take(2).collect::<Vec<_>>(),
    };
    let properties = TrackedBuf::concat(properties);
    let seed = properties.calculate::<_, DataLinkage>(|bytes| {
        bytes.iter().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add((*byte).into())
        })
    });
    let drawing = cpu.work(RENDER_TIME, *seed.get());
    let draw = |part: usize, count| seed.map(|_| letters(mix(drawing ^ part as u64), count));
    let frame = draw(usize::MAX, frame_bytes);
    let mut body = TrackedBuf::with_capacity(frame_bytes + content.len() * STORY_BYTES, 64);
    // The number of ads varies, so the frame stands before the ads. Its place is therefore fixed.
    if name == "ads" {
        body.push_text(&frame);
    }
    for (place, story) in content.into_iter().enumerate() {
        let end = body.len() + STORY_BYTES;
        push_line(story, &mut body);
        body.push_text(&draw(place, end - body.len()));
    }
    if name != "ads" {
        body.push_text(&frame);
    }
    Pagelet {
        index: index as u32,
        count: PAGELETS.len() as u32,
        name: name.to_owned(),
        provenance: tracked::send(&body, name).to_text(),
        body: body.into_bytes(),
    }
}

/// Appends the line of a story: its id in hexadecimal digits, its source and its score. All lines
/// are of equal length, so the place of the rest does not depend on the story.
fn push_line(story: &TrackedStory, body: &mut TrackedBuf) {
    body.extend_untracked(b"story ");
    let id = story.id();
    for byte in (0..id.len()).filter_map(|number| id.get::<DataLinkage>(number)) {
        body.push_text(&byte.map(|byte| format!("{byte:02x}")));
    }
    body.extend_untracked(b" from ");
    let source = story.source().calculate::<_, DataLinkage>(<[u8]>::to_vec);
    body.push_text(&source.map(|source| format!("{:<8}", String::from_utf8_lossy(&source))));
    body.extend_untracked(b" score ");
    body.push_text(&story.score().map(|score| format!("{score:.6}")));
    body.extend_untracked(b"\n");
}

/// Draws `count` letters.
fn letters(seed: u64, count: usize) -> String {
    let mut random = Random::new(seed);
    let mut letters = String::with_capacity(count + 8);
    while letters.len() < count {
        let bytes = random.next_u64().to_le_bytes();
        letters.extend(bytes.map(|byte| char::from(b'a' + byte % 26)));
    }
    letters.truncate(count);
    letters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story;
    use crate::wire::{RankReply, Story};

    #[test]
    fn pagelets_have_frames_and_content() {
        let cpu = Cpu::calibrate();
        let story = |source: &str| Story {
            id: 1,
            source: source.to_owned(),
            score: 0.5,
        };
        let stories = story::received(RankReply {
            stories: vec![story("friends"), story("ads"), story("pages")],
            provenance: String::new(),
        });
        let check = |index: usize, name: &str, bytes: usize| {
            let pagelet = render(&cpu, index, &[vec![1, 2].into()], &stories);
            assert_eq!(
                (pagelet.index as usize, pagelet.count, &*pagelet.name),
                (index, 4, name)
            );
            assert_eq!(pagelet.body.len(), bytes);
        };
        check(0, "header", 2_048);
        check(1, "stories", 4_096 + 3 * 320);
        check(2, "sidebar", 2_048 + 2 * 320);
        check(3, "ads", 2_048 + 320);
    }
}
