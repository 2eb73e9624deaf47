//! A replacement of the SDK's `ConnectionUsers` that does nothing.

/// The stream itself.
pub type UsedStream<T> = T;
/// The service itself.
pub type UsingService<S> = S;

/// A layer that returns services and streams unchanged.
#[derive(Clone, Debug, Default)]
pub struct ConnectionUsers(());

impl ConnectionUsers {
    /// Returns the stream unchanged.
    pub fn wrap<T>(&self, stream: T) -> UsedStream<T> {
        stream
    }
}

impl<S> ::tower::Layer<S> for ConnectionUsers {
    type Service = S;

    fn layer(&self, inner: S) -> S {
        inner
    }
}
