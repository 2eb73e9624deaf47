//! Names for those events of `tracing` that have a place in the source but no name.

use rustc_hash::FxHashMap;

use crate::callsite::Callsite;
use crate::record::FieldValue;

/// Maximum number of distinct messages used as names of one callsite. A callsite with more messages
/// probably formats values into them, so its further events are named by their target.
const MESSAGES_MAX: usize = 8;
/// Maximum length of a message used as a name. Longer messages, and messages with digits, are not
/// used.
const MESSAGE_BYTES_MAX: usize = 64;
/// Maximum number of callsites whose messages are examined. With the limits above, the names of a
/// recording take at most half a MiB.
const CALLSITES_MAX: usize = 1_024;

/// Messages that serve as names of the events of each callsite.
#[derive(Debug, Default)]
pub(super) struct EventNames {
    /// Messages by the callsite's address; `None` if messages are not used as names.
    messages: FxHashMap<usize, Option<Vec<&'static str>>>,
}

impl EventNames {
    /// Returns the event's message if it has one and its callsite is named by message, otherwise
    /// the callsite's name. Also returns the callsite's name beyond the first [`CALLSITES_MAX`]
    /// such callsites, and once a callsite has had an unsuitable message (empty, long or with
    /// digits) or more than [`MESSAGES_MAX`] distinct ones.
    pub(super) fn name<'a>(
        &mut self,
        callsite: &'static Callsite,
        mut fields: impl Iterator<Item = (&'static str, FieldValue<'a>)>,
    ) -> &'static str {
        if !callsite.is_named_by_message {
            return callsite.name;
        }
        match fields.find(|(name, _)| *name == "message") {
            Some((_, FieldValue::Text(text))) => {
                self.known(callsite, text).unwrap_or(callsite.name)
            }
            _ => callsite.name,
        }
    }

    fn known(&mut self, callsite: &'static Callsite, message: &str) -> Option<&'static str> {
        let address = std::ptr::from_ref(callsite).addr();
        if self.messages.len() >= CALLSITES_MAX && !self.messages.contains_key(&address) {
            return None;
        }
        let names = self
            .messages
            .entry(address)
            .or_insert_with(|| Some(Vec::new()));
        let messages = names.as_mut()?;
        if let Some(known) = messages.iter().find(|known| **known == message) {
            return Some(known);
        }
        let has_value = message.contains(|c: char| c.is_ascii_digit());
        let is_name = !message.is_empty() && message.len() <= MESSAGE_BYTES_MAX && !has_value;
        if messages.len() == MESSAGES_MAX || !is_name {
            *names = None;
            return None;
        }
        let name: &'static str = message.to_owned().leak();
        messages.push(name);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static COUNTED: Callsite = Callsite::new("app::queue", &["message"], "", 0).named_by_message();
    static GREETED: Callsite = Callsite::new("app::door", &["message"], "", 0).named_by_message();
    static LEFT: Callsite = Callsite::new("app::exit", &["message"], "", 0).named_by_message();
    static OWN_NAME: Callsite = Callsite::new("counted", &["message"], "", 0);

    #[test]
    fn events_are_named_by_their_messages_until_these_have_values() {
        let mut names = EventNames::default();
        let mut name = |callsite, message: &str| {
            names.name(
                callsite,
                [("message", FieldValue::Text(message))].into_iter(),
            )
        };
        assert_eq!(name(&COUNTED, "counted"), "counted");
        assert_eq!(name(&OWN_NAME, "another"), "counted");
        for user in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let message = format!("hello, {user}");
            assert_eq!(name(&GREETED, &message), message);
        }
        assert_eq!(name(&GREETED, "hello, i"), "app::door");
        assert_eq!(name(&GREETED, "hello, a"), "app::door");
        assert_eq!(name(&LEFT, "user 7 left"), "app::exit");
        assert_eq!(name(&COUNTED, "counted"), "counted");
        assert_eq!(
            name(&COUNTED, &"x".repeat(MESSAGE_BYTES_MAX + 1)),
            "app::queue"
        );
    }
}
