//! Connections that tell nobody who uses them.

/// The stream as it is.
pub type UsedStream<T> = T;
/// The service as it is.
pub type UsingService<S> = S;

/// Nobody.
#[derive(Clone, Debug, Default)]
pub struct ConnectionUsers(());

impl ConnectionUsers {
    /// The stream as it is.
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
