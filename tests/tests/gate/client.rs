//! Requests over any connection, in HTTP/1.1 and in gRPC.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Status;

pub(crate) const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Sends one request over HTTP/1.1. Returns the answer, as far as it arrives.
pub(crate) async fn ask_over(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    first_line: &str,
    headers: &[&str],
    body: &[u8],
) -> String {
    let has_host = headers
        .iter()
        .any(|header| header.to_lowercase().starts_with("host:"));
    let host = if has_host { "" } else { "Host: localhost\r\n" };
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    let length = body.len();
    let head = format!(
        "{first_line} HTTP/1.1\r\n{host}Connection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    // The server may answer before it has read all.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(body).await;
    let _ = stream.flush().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends a request like [`ask_over`], over a new connection without TLS.
pub(crate) async fn ask(address: &str, first_line: &str, headers: &[&str], body: &[u8]) -> String {
    let stream = TcpStream::connect(address).await.expect("it listens");
    ask_over(stream, first_line, headers, body).await
}

pub(crate) async fn metrics(pages: &str) -> String {
    ask(pages, "GET /metrics", &[], b"").await
}

/// Makes one call of gRPC with one message. Returns its status.
pub(crate) async fn call_over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    path: &str,
    headers: &[(&str, &str)],
    message: &[u8],
) -> Result<Status, h2::Error> {
    let (client, connection) = h2::client::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let mut request = http::Request::post(format!("http://localhost{path}"));
    request = request
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(()).expect("a request");
    let (response, mut body) = client.ready().await?.send_request(request, false)?;
    let is_packed = headers.iter().any(|(name, _)| *name == "grpc-encoding");
    let mut framed = vec![u8::from(is_packed)];
    framed.extend(
        u32::try_from(message.len())
            .expect("a length")
            .to_be_bytes(),
    );
    framed.extend(message);
    // The server may answer before.
    let _ = body.send_data(Bytes::from(framed), true);
    let response = response.await?;
    let status = match Status::from_header_map(response.headers()) {
        Some(status) => status,
        None => {
            // The status is in the trailers.
            let mut body = response.into_body();
            while let Some(chunk) = body.data().await {
                let length = chunk?.len();
                body.flow_control().release_capacity(length)?;
            }
            let trailers = body.trailers().await?.expect("trailers");
            Status::from_header_map(&trailers).expect("a status")
        }
    };
    connection.abort();
    Ok(status)
}

/// Makes a call like [`call_over`], over a new connection without TLS.
pub(crate) async fn call(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    message: &[u8],
) -> Status {
    let stream = TcpStream::connect(address).await.expect("it listens");
    call_over(stream, path, headers, message)
        .await
        .expect("an answer")
}
