//! The pagelets of a page and their generation.

use std::time::Duration;

use crate::cpu::Cpu;
use crate::random::Random;
use crate::wire::{Pagelet, Story};

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

/// Generates pagelet `index` of [`PAGELETS`].
pub(crate) fn render(
    cpu: &Cpu,
    index: usize,
    properties: &[Vec<u8>],
    stories: &[Story],
) -> Pagelet {
    let (name, frame_bytes) = PAGELETS[index];
    let content = match name {
        "header" => Vec::new(),
        "stories" => stories.iter().collect(),
        "ads" => stories
            .iter()
            .filter(|story| story.source == "ads")
            .collect(),
        _ => stories.iter().take(2).collect::<Vec<_>>(),
    };
    let seed = properties.iter().flatten().fold(0_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add((*byte).into())
    });
    let mut random = Random::new(cpu.work(RENDER_TIME, seed));
    let body_bytes = frame_bytes + content.len() * STORY_BYTES;
    let mut body = Vec::with_capacity(body_bytes + 8);
    while body.len() < body_bytes {
        body.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    body.truncate(body_bytes);
    Pagelet {
        index: index as u32,
        count: PAGELETS.len() as u32,
        name: name.to_owned(),
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pagelets_have_frames_and_content() {
        let cpu = Cpu::calibrate();
        let story = |source: &str| Story {
            id: 1,
            source: source.to_owned(),
            score: 0.5,
        };
        let stories = [story("friends"), story("ads"), story("pages")];
        let check = |index: usize, name: &str, bytes: usize| {
            let pagelet = render(&cpu, index, &[vec![1, 2]], &stories);
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
